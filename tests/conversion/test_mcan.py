"""The authors' MCAN: recorded outputs of released code, and invalid files."""

import json

import convert_mcan
import pytest
import torch
from safetensors.torch import load_file
from state_dicts import ConversionError
from transformers import AutoModelForVisualQuestionAnswering, AutoProcessor

from hf_ngsan.metrics.vqa import answer_scores, normalize_answer
from tests.golden import golden_folder
from tests.models.mcan.tiny import tiny_model
from tests.tables import each_row

SETS = ("small", "glimpse2_multigpu")
RECORDED = {
    "logits": lambda output: output.logits,
    "fused": lambda output: output.pooler_output,
    "loss.bce_sum": lambda output: output.loss,
    "question_glimpses": lambda output: output.question_glimpses.mT,
    "image_glimpses": lambda output: output.image_glimpses.mT,
    "question_lstm": lambda output: output.encoder_hidden_states[0],
    "image_projection": lambda output: output.decoder_hidden_states[0],
    **{f"encoder.layer_output.{n}": lambda output, n=n: output.encoder_hidden_states[n + 1] for n in range(2)},
    **{f"decoder.layer_output.{n}": lambda output, n=n: output.decoder_hidden_states[n + 1] for n in range(2)},
    "encoder.self_attention.0": lambda output: output.encoder_attentions[0],
    "decoder.self_attention.0": lambda output: output.decoder_attentions[0],
    "decoder.guided_attention.0": lambda output: output.cross_attentions[0],
}


def close(ours: torch.Tensor, recorded: torch.Tensor) -> None:
    torch.testing.assert_close(ours, recorded, atol=1e-5, rtol=1e-5)


@each_row("name", SETS)
@torch.no_grad()
def test_converted_checkpoints_compute_what_the_released_code_did(name, tmp_path, capsys):
    source = golden_folder("mcan")
    options = ["--checkpoint", source / f"{name}_epoch13.pkl", "--config", source / f"{name}_config.json"]
    options += ["--vocabulary", source / "text.json", "--answers", source / "text.json", "--output", tmp_path / "new"]
    assert convert_mcan.main(list(map(str, options))) == 0
    assert "all 107 weights" in capsys.readouterr().out
    recorded, text = load_file(source / f"{name}_io.safetensors"), json.loads((source / "text.json").read_text())
    processor = AutoProcessor.from_pretrained(tmp_path / "new")
    features, targets = recorded["inputs.image_features"], recorded["inputs.target_scores"]
    words = processor(text=text["questions"])
    assert words["input_ids"].tolist() == text["question_ids"]
    for attention in ("eager", "sdpa"):
        model = AutoModelForVisualQuestionAnswering.from_pretrained(tmp_path / "new", attn_implementation=attention)
        model.eval()
        eager = attention == "eager"
        kwargs = {"labels": targets, "output_hidden_states": True, "output_attentions": eager}
        output = model(**words, visual_features=features, **kwargs)
        for key, value in RECORDED.items():
            if eager or "attention" not in key:
                close(value(output), recorded[key])
        edge = model(recorded["edge.question_ids"], visual_features=recorded["edge.image_features"])
        close(edge.logits, recorded["edge.logits"])
    assert [model.config.label2id[answer] for answer in text["answer_to_ix"]] == [*text["answer_to_ix"].values()]


def test_answers_are_normalised_and_scored_as_by_the_released_code():
    text = json.loads((golden_folder("mcan") / "text.json").read_text())
    assert {answer: normalize_answer(answer) for answer in text["answers"]} == text["answers"]
    for people, expected in zip(text["annotations"], text["target_scores"], strict=True):
        scores = answer_scores(people)
        answers = sorted(text["answer_to_ix"], key=text["answer_to_ix"].get)
        assert [scores.get(answer, 0.0) for answer in answers] == expected


def test_questions_give_the_numbers_of_the_words(tmp_path):
    """Numbered as in the release, one question file after another."""
    source = golden_folder("mcan")
    text = json.loads((source / "text.json").read_text())
    files = []
    for part in range(2):
        questions = [
            {"question": question, "question_id": number, "image_id": 1}
            for number, question in enumerate(text["statistics_questions"])
            if (number > 2) == part
        ]
        files.append(tmp_path / f"{part}.json")
        files[-1].write_text(json.dumps({"questions": questions}))
    checkpoint, answers = source / "small_epoch13.pkl", source / "text.json"
    _, processor = convert_mcan.convert_files(checkpoint, answers, questions=files)
    actual = processor.tokenizer.get_vocab()
    expected = {**text["token_to_ix"], "<pad>": 0, "<unk>": 1}
    assert actual == {word: number for word, number in expected.items() if word not in ("PAD", "UNK")}
    with pytest.raises(ConversionError, match=r"\d+ words.*29"):
        convert_mcan.convert_files(checkpoint, answers, questions=files[:1])


def released_weights() -> dict[str, torch.Tensor]:
    """A state dict of five words and three answers under the authors' names."""
    labels = {str(number): number for number in range(3)}
    model = tiny_model(vocab_size=5, label2id=labels, id2label={number: name for name, number in labels.items()})
    return {convert_mcan.source_name(name): weight for name, weight in model.state_dict().items()}


@each_row(
    ("change", "message"),
    [
        (lambda weights: weights.pop("proj.weight"), "no matrix proj.weight"),
        (lambda weights: weights.pop("lstm.bias_hh_l0"), "lacks .*lstm.bias_hh_l0"),
        (lambda weights: weights.update({"more": torch.ones(1)}), "has weights .*more"),
        (lambda weights: weights["proj_norm.a_2"].fill_(torch.nan), "proj_norm.a_2 .*not finite"),
        (lambda weights: weights.update({"proj_norm.a_2": torch.ones(9)}), r"proj_norm.a_2 .*\(9,\).*\(20,\)"),
    ],
)
def test_weights_that_are_not_of_the_model(change, message):
    weights = released_weights()
    model = convert_mcan.convert_weights(weights, ["a", "b", "c"], num_attention_heads=2)
    assert model.config.id2label == {0: "a", 1: "b", 2: "c"} and model.config.loss_reduction == "sum"
    change(weights)
    with pytest.raises(ConversionError, match=message):
        convert_mcan.convert_weights(weights, num_attention_heads=2)
    with pytest.raises(ConversionError, match=r"2 answers.* 3"):
        convert_mcan.convert_weights(released_weights(), ["a", "b"], num_attention_heads=2)
