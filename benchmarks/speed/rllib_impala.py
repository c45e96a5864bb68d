"""RLlib's IMPALA on CartPole, as `benchmarks.speed.systems --only rllib` runs it in its own environment; prints JSON.

python benchmarks/speed/rllib_impala.py ENVS SECONDS
"""

import json
import sys
import time

import ray
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


def main(envs: int, seconds: float) -> None:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    model = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
    config = (
        IMPALAConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=envs, rollout_fragment_length=20)
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=20 * envs, lr=1e-3, grad_clip=0.5, entropy_coeff=0.01)
        .rl_module(model_config=model)
    )
    algorithm = config.build_algo()

    def learned() -> float:
        found = algorithm.train().get("learners", {}).get("__all_modules__", {})
        return float(found.get("num_env_steps_trained_lifetime", 0))

    while not (first := learned()):  # until what has to be begun has begun
        pass
    begun, own = time.perf_counter(), time.process_time()
    print(json.dumps({"ready": True}), flush=True)
    last = first
    while time.perf_counter() - begun < seconds:
        last = learned()
    print(json.dumps({
        "steps": last - first, "seconds": time.perf_counter() - begun, "own_cpu_seconds": time.process_time() - own,
    }), flush=True)  # fmt: skip
    sys.stdin.read()  # the measuring process says when to end
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
