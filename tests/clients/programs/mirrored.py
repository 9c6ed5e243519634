"""Print the task that TensorFlow sees, and the sum of all workers' numbers, each plus one."""

from __future__ import annotations

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
rank = resolver.task_id


def add_up() -> object:
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(rank + 1.0))


total = strategy.run(tf.function(add_up))
workers = resolver.cluster_spec().as_dict()["worker"]
print(
    f"{resolver.task_type} {rank} of {strategy.num_replicas_in_sync}, at {workers[rank]}, sum {float(total):g}",
    flush=True,
)
