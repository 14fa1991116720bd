from .engines import use_engine as use_engine
from .hub import save_for_hub as save_for_hub
from .models import ModelFolderError as ModelFolderError
from .models import find_model_folder as find_model_folder
from .models import load_captioner as load_captioner
from .models import load_config as load_config
from .models import load_model as load_model
from .models import save_model as save_model
