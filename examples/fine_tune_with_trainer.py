"""Fine-tune any captioner with transformers' Seq2SeqTrainer: all weights, or a LoRA adapter (pip install peft).

python examples/fine_tune_with_trainer.py --model runs/scenes --data scenes --output runs/tuned
python examples/fine_tune_with_trainer.py --model runs/scenes --data scenes --output runs/tuned --lora-rank 8
"""

import argparse

import numpy as np
from transformers import EvalPrediction, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_ngsan.data import CaptionCollator
from hf_ngsan.loading.models import load_captioner, save_model
from hf_ngsan.metrics import CaptionMetrics
from hf_ngsan.tasks.caption_rows import load_rows, rows_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="captioner: a folder, a training run or a name on the Hub")
    parser.add_argument("--data", required=True, help="dataset, as for hf-ngsan train")
    parser.add_argument("--output", required=True, help="folder of the model and of its checkpoints")
    parser.add_argument("--max-steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--lora-rank", type=int, help="train an adapter of this rank, and save it and the merged model")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint in the folder")
    options = parser.parse_args()

    model, processor = load_captioner(options.model)
    rows = {name: load_rows(options.data, name) for name in ("train", "validation")}
    rows = {name: rows_for(model, processor, split, options.data) for name, split in rows.items()}
    if options.lora_rank:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=options.lora_rank, target_modules="all-linear"))

    def scores_of(prediction: EvalPrediction) -> dict[str, float]:
        ids = np.maximum(prediction.predictions, 0)  # the trainer pads with -100, which is not a token
        captions = processor.batch_decode(ids, skip_special_tokens=True)
        return CaptionMetrics().compute(predictions=captions, references=list(rows["validation"]["captions"]))

    arguments = Seq2SeqTrainingArguments(
        output_dir=options.output,
        max_steps=options.max_steps,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        eval_strategy="steps",
        eval_steps=max(1, options.max_steps // 2),
        save_steps=max(1, options.max_steps // 2),
        predict_with_generate=True,
        remove_unused_columns=False,  # the collator reads them
        report_to=[],
    )
    longest = model.generation_config.max_new_tokens
    collator = CaptionCollator(processor, captions_per_image=None, max_caption_length=longest)
    splits = {"train_dataset": rows["train"], "eval_dataset": rows["validation"]}
    trainer = Seq2SeqTrainer(model, arguments, data_collator=collator, compute_metrics=scores_of, **splits)
    trainer.train(resume_from_checkpoint=options.resume or None)
    print(trainer.evaluate())
    if options.lora_rank:
        model.save_pretrained(f"{options.output}/adapter")
        model = model.merge_and_unload()
    save_model(model, processor, options.output)


if __name__ == "__main__":
    main()
