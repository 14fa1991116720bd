from .requests import ServingLimits as ServingLimits
from .server import Batcher as Batcher
from .server import BoundedServer as BoundedServer
from .server import create_app as create_app
