from .captioner import Captioner as Captioner
from .folder import MAX_DIFFERENCE as MAX_DIFFERENCE
from .folder import compare as compare
from .folder import write_exported_captioner as write_exported_captioner
from .folder import write_exported_dual_encoder as write_exported_dual_encoder
from .graphs import UnexportableError as UnexportableError
from .graphs import check_exporter as check_exporter
