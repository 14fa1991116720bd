"""transformers' common tests on the package's own backbones."""

import unittest

import pytest
import torch

from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig
from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone, NGSANResNeXtConfig
from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone, NGSANVGGConfig
from tests.models.test_backbones import TINY_RESNEXT
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

backbone_common = import_suite("test_backbone_common")
configuration_common = import_suite("test_configuration_common")
modeling_common = import_suite("test_modeling_common")


class ImageBackboneTester:
    """A tiny backbone and random images in the form that the common tests expect."""

    batch_size = 3
    is_training = False

    def __init__(self, config_class, **fields):
        self.config_class, self.fields = config_class, fields

    def get_config(self):
        return self.config_class(**self.fields)

    def prepare_config_and_inputs_for_common(self):
        return self.get_config(), {"pixel_values": torch.rand(self.batch_size, 3, 32, 32)}


class BackboneTests(backbone_common.BackboneTesterMixin, modeling_common.ModelTesterMixin):
    """Subclasses set `config_class`, `all_model_classes` and `fields` of a tiny configuration."""

    has_attentions = False
    test_resize_embeddings = False
    test_can_init_all_missing_weights_before_2023 = True

    def setUp(self):
        self.model_tester = ImageBackboneTester(self.config_class, **self.fields)
        self.config_tester = configuration_common.ConfigTester(
            self, config_class=self.config_class, has_text_modality=False, common_properties=["num_channels"]
        )

    def test_configuration(self):
        self.config_tester.run_common_tests()

    def test_hidden_states_output(self):
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        for by_config in (False, True):
            config.output_hidden_states = by_config
            model = self.all_model_classes[0](config).eval()
            asked = {} if by_config else {"output_hidden_states": True}
            states = model(**inputs, **asked).hidden_states
            assert [state.shape[1] for state in states] == model.num_features

    @unittest.skip("a backbone has no input embeddings")
    def test_inputs_embeds(self):
        pass

    @unittest.skip("a backbone has no input embeddings")
    def test_model_get_set_embeddings(self):
        pass

    @unittest.skip("a backbone returns no last hidden state")
    def test_retain_grad_hidden_states_attentions(self):
        pass


SIZES = {"depths": [1, 2, 1], "hidden_sizes": [4, 6, 8]}


class EfficientNetLiteBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANEfficientNetLiteConfig
    all_model_classes = (NGSANEfficientNetLiteBackbone,)
    fields = {**SIZES, "embedding_size": 4}


class ResNeXtBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANResNeXtConfig
    all_model_classes = (NGSANResNeXtBackbone,)
    fields = TINY_RESNEXT


class VGGBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANVGGConfig
    all_model_classes = (NGSANVGGBackbone,)
    fields = SIZES

    def test_config(self):
        """The common test, for a network without a stem."""
        config = NGSANVGGConfig(**self.fields)
        assert config.stage_names == ["stage1", "stage2", "stage3"]
        assert (config.out_features, config.out_indices) == (["stage3"], [2])
        assert NGSANVGGConfig(out_indices=[0, 2]).out_features == ["stage1", "stage3"]
        assert NGSANVGGConfig(out_features=["stage1", "stage3"]).out_indices == [0, 2]
        with pytest.raises(ValueError, match="same stages"):
            NGSANVGGConfig(out_features=["stage1", "stage2"], out_indices=[0, 2])
