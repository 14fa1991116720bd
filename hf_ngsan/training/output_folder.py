"""The folder of a training run: begun, resumed or refused, never mixed with anything else."""

import shutil

from ..files import is_empty, remove_leftovers
from .recipe import Recipe, RecipeError, load_recipe, save_recipe

RECIPE_FILE = "recipe.yaml"


def check_output_folder(recipe: Recipe, resume: bool, overwrite: bool) -> None:
    """Refuses to mix a run with whatever its folder already holds; nothing is written.

    Raises:
        FileExistsError: the folder holds a run, and neither `resume` nor `overwrite` is given, or something else.
        RecipeError: a run to be resumed has another recipe; the keys are named.
    """
    folder, recipe_file = recipe.output_dir, recipe.output_dir / RECIPE_FILE
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"training.output_dir: {folder} is a file; choose another folder.")
    if is_empty(folder):
        return
    if not recipe_file.is_file():
        raise FileExistsError(
            f"training.output_dir: {folder} holds files that are no training run ({RECIPE_FILE} is missing); "
            "choose another folder."
        )
    if overwrite:
        return
    if not resume:
        raise FileExistsError(
            f"{folder} already holds a run; add --resume to continue it, --overwrite to delete it and start again, or "
            "choose another training.output_dir."
        )
    changed = load_recipe(recipe_file, (), lambda model: type(recipe)).changes_that_break_resuming(recipe)
    if changed:
        of_schedule = any(key.endswith(".epochs") for key in changed)
        reason = " (the cosine schedule of every update depends on the number of epochs)" if of_schedule else ""
        raise RecipeError(
            f"{folder} cannot be resumed: {', '.join(changed)} differ{'s' if len(changed) == 1 else ''} from "
            f"{recipe_file}{reason}; use the value there, or --overwrite to start again."
        )


def prepare_output_folder(recipe: Recipe, overwrite: bool) -> None:
    """Makes the folder, empty if `overwrite`, and write the recipe into it."""
    if overwrite and recipe.output_dir.exists():
        shutil.rmtree(recipe.output_dir)
    recipe.output_dir.mkdir(parents=True, exist_ok=True)
    remove_leftovers(recipe.output_dir)
    save_recipe(recipe, recipe.output_dir / RECIPE_FILE)
