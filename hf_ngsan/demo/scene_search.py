"""Synthetic scenes in an index, found by words."""

import io
import shutil
from pathlib import Path

from ..data import draw_scene
from ..loading.models import find_model_folder, load_model
from ..models.configuration_vision import lasting_name
from ..retrieval import IndexDescription, IndexFolder
from ..tasks.caption_rows import load_rows
from ..tasks.retrieval.evaluate import embed_images
from ..tasks.retrieval.index import THUMBNAIL_SIDE, model_fingerprint
from ..tasks.retrieval.search import draw_hits, search_images
from ..training import Recipe

SHOWN = 9
PRINTED = 3


def search_scenes(recipe: Recipe, output: Path) -> None:
    """Indexes the test scenes with a trained dual encoder, looks for one by its description, and draws what it finds.

    Args:
        recipe: of the dual encoder.
        output: folder that gets `scenes.index/` and `hits.png`.
    """
    model, processor = load_model(recipe.output_dir, "retrieval")
    rows = [dict(row) for row in load_rows(recipe.data.spec, "test")]
    names = [f"scene {row['image_id']}" for row in rows]
    embeddings = embed_images(model, processor, rows)
    description = IndexDescription(
        model=lasting_name(find_model_folder(recipe.output_dir)),
        fingerprint=model_fingerprint(model, processor),
        source=recipe.data.spec,
        source_checksum=recipe.data.spec,
        dimension=embeddings.shape[1],
        num_items=len(rows),
        items_per_shard=len(rows),
    )
    folder = output / "scenes.index"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier model
    index = IndexFolder.begin(folder, description)
    index.write_shard(0, names, embeddings, thumbnails=[drawing(row) for row in rows])
    query = rows[0]["captions"][0]
    hits = search_images(model, processor, index, text=query, top_k=SHOWN)
    print(f'\nhf-ngsan search {folder} "{query}"')
    for hit in hits[:PRINTED]:
        print(f"  {hit.score:.4f}  {hit.name}{', which the text describes' if hit.name == names[0] else ''}")
    draw_hits(index, hits, query, output / "hits.png")
    print(f"The first {len(hits)} of {len(rows)} scenes: {output / 'hits.png'}")


def drawing(row: dict) -> bytes:
    """Returns a small drawing of a scene, as JPEG."""
    file = io.BytesIO()
    draw_scene(row, THUMBNAIL_SIDE).save(file, "JPEG", quality=85)
    return file.getvalue()
