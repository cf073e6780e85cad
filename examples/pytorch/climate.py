"""One-step weather forecast by a small Vision Transformer: next year's temperature from the eight years before.

    make setup                                     # fetches the data, once
    tradewind run examples/pytorch/climate.toml -- python examples/pytorch/climate.py

The data are those of deploy/configs/climate-forecast.toml: HadCM3's annual mean surface air temperature over North
America, scenarios A1B and E1, 1860 to 2099, in NetCDF-4, which is HDF5: `pip install h5py`. A map is cut into
patches, each of which looks at all others (Dosovitskiy et al. 2020), as in weather models on Vision Transformers.
"""

from typing import Any

import h5py
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import tradewind as tw

#: Years that the model sees.
HISTORY = 8
#: Years since 1860 that are trained on: up to 2039; and that are not looked at: 2060 to 2099.
TRAINING, HELD_OUT = range(HISTORY, 180), range(200, 240)


class Years(Dataset):
    """Years of all scenarios: the maps before, `[HISTORY, y, x]`, and the year's own, `[y, x]`, in kelvin."""

    def __init__(self, files: list[str], years: range) -> None:
        self.scenarios = []
        for name in files:
            with h5py.File(name) as file:
                self.scenarios.append(torch.from_numpy(file["air_temperature"][:]))
        self.years = years

    def __len__(self) -> int:
        return len(self.scenarios) * len(self.years)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        scenario, year = divmod(number, len(self.years))
        maps, year = self.scenarios[scenario], self.years[year]
        return maps[year - HISTORY : year], maps[year]


class Forecaster(nn.Module):
    """Adds to the mean of the history what a transformer over patches makes of the departures from it.

    Args:
        shape: Height and width of a map; both divided by `patch`, what is left over is padded.
    """

    def __init__(self, shape: torch.Size, patch: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patch, self.shape = patch, shape
        self.rows, self.columns = (-(-side // patch) for side in shape)
        self.embed = nn.Conv2d(HISTORY, width, patch, stride=patch)
        self.places = nn.Parameter(0.02 * torch.randn(self.rows * self.columns, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, patch * patch)
        # The first forecast is the mean.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, history: Tensor) -> Tensor:
        """From `[n, HISTORY, y, x]` to `[n, y, x]`."""
        mean = history.mean(1)
        height, width = self.shape
        below, right = self.rows * self.patch - height, self.columns * self.patch - width
        departures = F.pad(history - mean[:, None], (0, right, 0, below))
        tokens = self.embed(departures).flatten(2).transpose(1, 2) + self.places
        patches = self.head(self.layers(tokens)).transpose(1, 2)
        fold = (self.rows * self.patch, self.columns * self.patch)
        change = F.fold(patches, fold, self.patch, stride=self.patch)[:, 0, :height, :width]
        return mean + change


def model_of(settings: dict[str, Any], data: Years) -> Forecaster:
    """The model that section `script` of the run's file describes."""
    shape = data.scenarios[0].shape[1:]
    return Forecaster(shape, settings["patch"], settings["width"], settings["depth"], settings["heads"])


@torch.no_grad()
def evaluate(model: nn.Module, data: Years) -> float:
    """Root mean square error, in kelvin."""
    device = next(model.parameters()).device
    batches = torch.utils.data.DataLoader(data, batch_size=16)
    squares = [(model(history.to(device)).cpu() - year).square().mean((1, 2)) for history, year in batches]
    return float(torch.cat(squares).mean().sqrt())


def main() -> None:
    rank = tw.join()
    torch.manual_seed(rank.seed)
    data = Years(rank.settings["files"], TRAINING)
    model = model_of(rank.settings, data).to(rank.device)
    opt = rank.optimizer(model)

    @rank.evaluate
    def held_out_rmse(model: nn.Module) -> float:
        return evaluate(model, Years(rank.settings["files"], HELD_OUT))

    loader = rank.loader(data)
    while not rank.done:
        for history, year in loader:
            opt.zero_grad()
            loss = F.mse_loss(model(history.to(rank.device)), year.to(rank.device))
            loss.backward()
            opt.step()
            rank.log(loss=loss)


if __name__ == "__main__":
    main()
