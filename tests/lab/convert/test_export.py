"""A checkpoint's step and its model card; what merges the weights is tested with a training."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import openai
import pytest
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment
from omegaconf import DictConfig, OmegaConf
from ragen_lab.convert.export import card, checkpoints, find, step_of
from ragen_lab.convert.template import as_trained, with_beginning
from ragen_lab.evaluate.endpoint import Endpoint, Sampling
from ragen_lab.evaluate.plan import episodes
from ragen_lab.evaluate.policies import Scripted
from ragen_lab.evaluate.runner import evaluate
from ragen_lab.evaluate.server import NAME, serving
from ragen_lab.evaluate.summary import results
from saved_checkpoints import cut, save
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_verl.config import RagenConfig
from ragen_verl.cpu.nano_model import nano_model_path
from ragen_verl.errors import RecipeError
from ragen_verl.names import HELD_OUT_SUCCESS
from ragen_verl.rollout.chat import ChatTokens
from ragen_verl.runs.folder import RunFolder
from ragen_verl.runs.trajectories import messages
from ragen_verl.validation.composition import compose


def made(path: Path, model: str = "some/model", n: int = 1) -> RunFolder:
    folder = RunFolder(path)
    envs = [{"id": "Lake-v0", "groups": 2, "kwargs": {"size": 4}}]
    ragen = {"train": {"envs": envs, "seed": 100}, "val": {"envs": envs, "seed": 7}}
    rollout = {"model": {"path": model}, "rollout": {"val_kwargs": {"n": n}}}
    folder.begin(OmegaConf.create({"actor_rollout_ref": rollout, "ragen": ragen}), 0)
    for step, rate in ((0, 0.25), (2, 0.75), (4, 0.5)):
        folder.log(step, {HELD_OUT_SUCCESS: rate, "val-env/episodes": 64, "val-env/return": rate - 0.1})
        if step:
            save(folder.path / "checkpoints", step)
    shutil.copytree(folder.path / "checkpoints" / "global_step_2", folder.kept / "best")
    (folder.kept / "best" / "step.txt").write_text("2")
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, DictConfig, list[dict]]:
    """The nano model as an export leaves it, the recipe, and first prompts of held-out episodes."""
    root = tmp_path_factory.mktemp("exported")
    config, out, folder = compose("nano/frozen_lake", ["ragen.run.dir=x"]), root / "model", made(root / "run")
    shutil.copytree(nano_model_path(), out, ignore=shutil.ignore_patterns("tools"))  # another model lies there
    (out / "model.safetensors").chmod(0o600)
    policy, plan = Scripted("oracle"), episodes(RagenConfig.from_omegaconf(config), states=24)
    records = evaluate(RagenConfig.from_omegaconf(config), policy, plan, root / "eval", lengths=(200, 600), settings={})
    folder.write_trajectories("val", 0, records)
    OmegaConf.save(config, folder.path / "config.yaml")
    as_trained(OmegaConf.to_container(config, resolve=True), out)
    (out / "README.md").write_text(card(folder, "last"))
    return out, config, [messages(one, 1) for one in records]


def test_the_exported_template_gives_the_ids_of_training(exported):
    out, config, asked = exported
    trained, now = (AutoTokenizer.from_pretrained(path) for path in (nano_model_path(), out))
    protocol = RagenConfig.from_omegaconf(config).rollout.chat_protocol()
    chat = ChatTokens(trained, protocol)
    for system, user in asked:
        ids = now.apply_chat_template([system, user], add_generation_prompt=True, return_dict=True)["input_ids"]
        assert ids == chat.initial(system["content"], user["content"])
        assert ChatTokens(now, protocol).initial(system["content"], user["content"]) == ids, "hf: plays it as before"
    assert {file.stat().st_mode & 0o777 for file in out.iterdir()} == {0o666 & ~current_umask()}


def test_the_cards_call_gives_valid_answers(exported):
    out, config, asked = exported
    page = (out / "README.md").read_text()
    code = "\n".join(line.removeprefix("    ") for line in page.splitlines() if line.startswith("    "))
    code = code[: code.index("ragen-verl eval")].rstrip()
    assert "FOLDER" not in page and json.dumps(asked[0][1]["content"], ensure_ascii=False) in page
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    protocol = RagenConfig.from_omegaconf(config).rollout.chat_protocol()
    valid = 0
    for one in asked:
        prompt = tokenizer.apply_chat_template(one, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        answer = model.generate(**prompt, max_new_tokens=64, do_sample=False)
        text = tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        valid += protocol.parse(text).format_ok
    assert valid == len(asked)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert protocol.parse(done.stdout).format_ok, done.stdout


def test_the_card_of_a_model_with_tools_asks_as_in_training(tmp_path):
    given = ["ragen.run.dir=x", "ragen.val.envs.0.groups=4"]
    config, folder = compose("nano/tools", given), made(tmp_path / "run")
    ragen, model = RagenConfig.from_omegaconf(config), nano_model_path() / "tools"
    records = evaluate(ragen, Scripted("oracle"), episodes(ragen), tmp_path / "eval", lengths=(100, 500), settings={})
    folder.write_trajectories("val", 0, records)
    OmegaConf.save(config, folder.path / "config.yaml")
    (folder.path / "hydra").mkdir()
    OmegaConf.save(OmegaConf.create(given), folder.path / "hydra" / "overrides.yaml")
    page = card(folder, "last")
    assert "ragen-verl eval run ragen.val.envs.0.groups=4 --policy hf:.\n" in page
    assert "how an answer begins" not in page
    lines = [line.removeprefix("    ") for line in page.splitlines() if line.startswith("    ")]
    code = [line for line in lines[: lines.index("prompt = tokenizer.apply_chat_template(messages, **asked)") + 1]]
    seen: dict = {}
    exec("\n".join(line.replace('"."', repr(str(model))) for line in code), seen)
    chat = ragen.rollout.chat_protocol().chat(AutoTokenizer.from_pretrained(model))
    system, user = messages(records[0], 1)
    ids = chat.initial(system["content"], user["content"], records[0]["preamble"]["tools"])
    assert seen["prompt"]["input_ids"][0].tolist() == ids


@pytest.mark.slow
def test_vllm_answers_the_exported_model_as_its_card_says(exported, tmp_path):
    out, config, asked = exported
    config = OmegaConf.merge(config, {"ragen": {"rollout": {"max_turns": 40, "max_actions": 200}}})
    ragen = RagenConfig.from_omegaconf(config)
    protocol = ragen.rollout.chat_protocol()
    with serving(out, dtype="float32", max_model_len=400) as url:
        client = openai.OpenAI(base_url=url, api_key="none")
        replies = [client.chat.completions.create(model=NAME, messages=one, temperature=0) for one in asked]
        assert all(protocol.parse(one.choices[0].message.content).format_ok for one in replies)
        assert {one.choices[0].finish_reason for one in replies} == {"stop"}
        sampling = Sampling(response_length=4096, concurrency=4)  # more than its context has
        settings = {"lengths": (200, 600), "settings": {}}
        plan = episodes(ragen, states=12)
        records = evaluate(ragen, Endpoint(NAME, url, sampling), plan, tmp_path / "api", **settings)
        found = results({"api": records})["policies"]["api"]["val/FrozenLake"]
        assert found["excluded"] == 0 and found["valid_actions"] > 0.9 and set(found["finishes"]) <= {"stop", "length"}
        assert found["stops"].get("context_full"), found["stops"]
        with pytest.raises(RecipeError, match=r"another cannot be asked at .*404"):
            evaluate(ragen, Endpoint("another", url, sampling), plan, tmp_path / "none", **settings)


@pytest.mark.parametrize(
    ("arguments", "beginning"),
    [({}, ""), ({"enable_thinking": False, "name": None}, "<|x|>{{ '<think>\n"), ({"a": [1, "b"]}, "é")],
)
def test_a_template_keeps_its_arguments_and_its_end(arguments, beginning):
    template = "{% for one in messages %}<{{ one.content }}>{% endfor %}\n{{ enable_thinking is defined }}{{ name }}\n"
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    asked = {"messages": [{"content": "a"}], "add_generation_prompt": True}
    before = environment.from_string(template).render(**asked, **arguments)
    after = environment.from_string(with_beginning(template, beginning, arguments))
    assert after.render(**asked) == before + beginning
    assert after.render(**asked | {"add_generation_prompt": False}) == before


def current_umask() -> int:
    os.umask(mask := os.umask(0))
    return mask


def test_the_card_has_the_result_of_its_own_checkpoint(tmp_path):
    folder = made(tmp_path)
    page = card(folder, "last")
    assert "| before training | 0 | 0.250 | 0.160 to 0.368 | 0.150 |" in page
    assert "| this model | 4 | 0.500 | 0.381 to 0.619 | 0.400 |" in page
    assert "| best of the run | 2 | 0.750 |" in page
    assert "| this model | 2 | 0.750 |" in card(folder, "best") and ", step 2\n" in card(folder, "best")


def test_the_card_names_model_environments_and_versions(tmp_path):
    page = card(made(tmp_path), "4")
    head = yaml.safe_load(page.split("---")[1])
    assert head["base_model"] == "some/model" and head["pipeline_tag"] == "text-generation"
    assert '- Trained on: Lake-v0 {"size": 4}, seeds from 100' in page and "Generalisation" not in page
    for name, number in json.loads((tmp_path / "versions.json").read_text()).items():
        assert f"| {name} | {number} |" in page


def test_a_model_of_this_machine_is_named_without_its_path(tmp_path):
    page = card(made(tmp_path / "run", model=str(tmp_path / "own")), "last")
    assert "base_model" not in page and "\nown, trained" in page and str(tmp_path) not in page


def test_several_episodes_of_a_state_get_no_interval(tmp_path):
    assert "| this model | 4 | 0.500 | - | 0.400 |" in card(made(tmp_path, n=4), "last")


def test_a_damaged_run_has_a_card_all_the_same(tmp_path):
    folder = made(tmp_path)
    for name in ("config.yaml", "versions.json", "metrics.jsonl"):
        (tmp_path / name).write_text("{[")
    assert "step 4" in card(folder, "last") and "| held out |" not in card(folder, "last")


def test_checkpoints_have_names_and_steps(tmp_path):
    found = checkpoints(made(tmp_path))
    assert {name: step_of(path) for name, path in found.items()} == {"2": 2, "4": 4, "last": 4, "best": 2}
    with pytest.raises(RecipeError, match=r"has no checkpoint '3'; it has 2, 4, last, best"):
        card(RunFolder(tmp_path), "3")
    (tmp_path / "kept" / "best" / "step.txt").unlink()
    with pytest.raises(RecipeError, match="does not say which step"):
        card(RunFolder(tmp_path), "best")


def test_the_last_checkpoint_is_the_newest_whole_one(tmp_path):
    folder = made(tmp_path)
    cut(tmp_path / "checkpoints" / "global_step_4" / "actor" / "model_world_size_1_rank_0.pt")
    assert find(folder, "last").name == "global_step_2" and ", step 2\n" in card(folder, "last")
    with pytest.raises(RecipeError, match=r"model_world_size_1_rank_0\.pt is cut short.*another of 2, 4, last, best"):
        find(folder, "4")
