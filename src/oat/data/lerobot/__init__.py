"""LeRobotDataset v3.0: reading with pyarrow and PyAV, writing atomically; the format in which data sets are kept.

`meta/info.json` names the features; `meta/episodes/` locates every episode in the data and video files, each of which
holds many episodes; see https://huggingface.co/docs/lerobot/lerobot-dataset-v3.
"""

from oat.data.lerobot.reader import is_lerobot, read_lerobot
from oat.data.lerobot.writer import LeRobotWriter, copy_episode

__all__ = ["LeRobotWriter", "copy_episode", "is_lerobot", "read_lerobot"]
