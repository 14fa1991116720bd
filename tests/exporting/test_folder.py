"""The folder of an exported captioner, and models that cannot be exported."""

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_ngsan.exporting import UnexportableError, write_exported_captioner
from hf_ngsan.exporting.captioner import Words
from hf_ngsan.exporting.folder import decoding_settings, image_settings, word_settings
from hf_ngsan.exporting.graphs import encode, write_graph
from tests.models import tiny
from tests.models.rstnet import tiny as tiny_rstnet
from tests.models.tiny_photos import pixel_captioner, pixel_processor

SIZE = {"height": 20, "width": 20}
IDS = np.array([[1, 4, 5, 6, 2, 0], [1, 5, 3, 7, 4, 2]])


def test_pieces_of_words_are_put_together(tmp_path):
    words = ["<pad>", "<s>", "</s>", "<unk>", "dogs", "play", "##ing", "##ed"]
    backend = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(tmp_path)
    settings = word_settings(tokenizer)
    assert settings["vocabulary"] is None
    actual = Words(tmp_path, settings).decode(IDS)
    assert actual == tokenizer.batch_decode(IDS, skip_special_tokens=True) and "dogs playing" in actual


def test_settings_of_generate():
    model = tiny.tiny_captioner()
    model.generation_config.num_beams = 3
    actual = decoding_settings(model)
    assert (actual["num_beams"], actual["max_new_tokens"], actual["eos_token_ids"]) == (3, 8, [2])
    assert decoding_settings(tiny_rstnet.tiny_captioner(release=True))["finished_beams"] == "compete"
    model.generation_config.no_repeat_ngram_size = 2
    with pytest.raises(UnexportableError, match="no_repeat_ngram_size"):
        decoding_settings(model)


def test_models_that_have_no_exported_form(tmp_path):
    processors = [pixel_processor(), pixel_processor(), pixel_processor(shortest_edge=9, longest_edge=9)]
    processors[0].image_processor.do_normalize = False
    processors[1].image_processor.crop_size, processors[1].image_processor.do_center_crop = SIZE, True
    for processor in processors:
        with pytest.raises(UnexportableError, match="image processor"):
            image_settings(pixel_captioner(), processor)
    detector = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace(kind="regions")))
    with pytest.raises(UnexportableError, match="regions"):
        image_settings(detector, pixel_processor())
    assert image_settings(pixel_captioner(), pixel_processor())["width"] == 32
    with pytest.raises(UnexportableError, match="grid_size"):
        grids = tiny_rstnet.tiny_captioner(grid_position_embedding=True)
        write_exported_captioner(grids, tiny.tiny_processor(), tmp_path)
    with pytest.raises(UnexportableError, match="NGSANModel"):
        write_exported_captioner(tiny.tiny_captioner().model, tiny.tiny_processor(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_the_exporter_cannot_trace(tmp_path, monkeypatch):
    exporters = MagicMock()
    exporters.OnnxExporter().export_program.side_effect = RuntimeError("It loops.")
    monkeypatch.setitem(sys.modules, "transformers.exporters", exporters)
    inputs = {"pixel_values": torch.zeros(2, 3, 8, 8)}
    with pytest.raises(UnexportableError, match="It loops"):
        write_graph(tiny.tiny_captioner(), encode, inputs, tmp_path / "encoder.onnx")
