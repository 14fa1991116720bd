"""transformers' common tests on EfficientNet-Lite."""

import unittest

import pytest
import torch

from hf_ngsan.models.efficientnet_lite_classifier import NGSANEfficientNetLiteForImageClassification
from hf_ngsan.models.modeling_efficientnet_lite import (
    NGSANEfficientNetLiteBackbone,
    NGSANEfficientNetLiteConfig,
)
from tests.models.backbone_suite import BackboneTests, modeling_common
from tests.models.efficientnet_lite.tiny import FIELDS, classifier_config


class EfficientNetLiteBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANEfficientNetLiteConfig
    all_model_classes = (NGSANEfficientNetLiteBackbone,)
    fields = FIELDS


@pytest.mark.slow
class BackboneWithHeadTest(EfficientNetLiteBackboneTest):
    fields = {**FIELDS, "head_size": 12}


class ClassifierTester:
    """A tiny classifier with images, in the form that the common tests ask for."""

    batch_size = 3
    is_training = True
    num_labels = 5

    def get_config(self):
        return classifier_config(num_labels=self.num_labels)

    def prepare_config_and_inputs_for_common(self):
        return self.get_config(), {"pixel_values": torch.rand(self.batch_size, 3, 32, 32)}


class EfficientNetLiteForImageClassificationTest(modeling_common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (NGSANEfficientNetLiteForImageClassification,)
    has_attentions = False
    test_resize_embeddings = False
    test_can_init_all_missing_weights_before_2023 = True

    def setUp(self):
        self.model_tester = ClassifierTester()

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        """As the common one does for the classifiers that transformers has."""
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        labels = torch.arange(self.model_tester.batch_size, device=inputs["pixel_values"].device)
        return {**inputs, "labels": labels} if return_labels else inputs

    def test_hidden_states_output(self):
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        model = self.all_model_classes[0](config).eval()
        states = model(**inputs, output_hidden_states=True).hidden_states
        assert [state.shape[1] for state in states] == model.efficientnet_lite.num_features

    @unittest.skip("a classifier of images has no input embeddings")
    def test_inputs_embeds(self):
        pass

    @unittest.skip("a classifier of images has no input embeddings")
    def test_model_get_set_embeddings(self):
        pass

    @unittest.skip("the maps of the stages have other names than the common test knows")
    def test_retain_grad_hidden_states_attentions(self):
        pass
