from .captioners import Guest as Guest
from .captioners import guest_of as guest_of
from .captioners import register_guest as register_guest
from .dual_encoders import DualEncoder as DualEncoder
from .dual_encoders import dual_encoder_of as dual_encoder_of
