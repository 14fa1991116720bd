"""Configuration of MHSAN's encoder of texts: word vectors and simple recurrent units."""

from .configuration_hub import HubConfig, strict


@strict
class MHSANTextConfig(HubConfig):
    r"""Configuration of the text encoder of Park et al. 2020: word vectors and simple recurrent units.

    Args:
        vocab_size (`int`, defaults to 20000): words and special tokens.
        word_embedding_size (`int`, defaults to 620): dimension of a word vector.
        hidden_size (`int`, defaults to 2400): dimension of an output, of both directions together.
        num_hidden_layers (`int`, defaults to 4): layers of simple recurrent units.
        bidirectional (`bool`, defaults to `False`): whether each layer reads in both directions, with half the
            channels each.
        activation (`str`, defaults to `"tanh"`): of the units' memory: `"tanh"`, `"identity"` or `"relu"`.
        dropout (`float`, defaults to 0.25): on the outputs of all layers but the last.
        input_dropout (`float`, defaults to 0.25): on the inputs of all layers' matrix products.
        highway (`bool`, defaults to `True`): whether layers have a skip connection.
        highway_bias (`float`, defaults to 0.0): initial bias of the reset gate.
        scale_x (`float`, defaults to 1.0): factor of a layer's input in its skip connection; sqrt(3) in models that
            were trained with releases of `sru` up to 2.1.4.
        initializer_range (`float`, defaults to 0.1): standard deviation of the initial word vectors (inferred).
        pad_token_id (`int`, defaults to 0).

    Raises:
        ValueError: sizes that do not fit together or a switch with an unknown value; the message names the field.
    """

    model_type = "mhsan_text"
    remote_classes = {
        "AutoConfig": "configuration_mhsan_text.MHSANTextConfig",
        "AutoModel": "modeling_mhsan_text.MHSANTextModel",
    }
    field_choices = {"activation": ("tanh", "identity", "relu")}

    vocab_size: int = 20000
    word_embedding_size: int = 620
    hidden_size: int = 2400
    num_hidden_layers: int = 4
    bidirectional: bool = False
    activation: str = "tanh"
    dropout: float | int = 0.25
    input_dropout: float | int = 0.25
    highway: bool = True
    highway_bias: float | int = 0.0
    scale_x: float | int = 1.0
    initializer_range: float | int = 0.1
    pad_token_id: int | None = 0

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size ({self.hidden_size}) must be even: each direction has half of it.")


__all__ = ["MHSANTextConfig"]
