"""Two steps of each trainer, and the libraries that make data sets, where they are installed."""

import pytest
from loader_sets import Squares

import millrace

torch = pytest.importorskip("torch")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x=None, labels=None):
        loss = ((self.layer(x) - labels[:, None]) ** 2).mean()
        return {"loss": loss, "logits": self.layer(x)}


def test_lightning(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")
    seen = []

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, index):
            seen.append(batch[1].tolist())
            return self.model(batch[0], batch[1].float())["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-9)

    loader = millrace.DataLoader(Squares(40), 10, True)
    trainer = lightning.Trainer(
        max_epochs=2, limit_train_batches=2, accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Module(), loader)
    assert [len(labels) for labels in seen] == [10] * 4
    assert seen[0] != seen[2]


def test_accelerate():
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = Model()
    loader = millrace.DataLoader(Squares(40), 10, True)
    model, optimizer, prepared = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 1e-9), loader
    )
    assert prepared is loader
    steps = 0
    for x, labels in prepared:
        accelerator.backward(model(x, labels.float())["loss"])
        optimizer.step()
        steps += 1
    assert steps == 4


def test_hugging_face_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")

    class Rows(Squares):
        def __getitem__(self, index):
            x, label = super().__getitem__(index)
            return {"x": x, "labels": float(label)}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return millrace.DataLoader(self.train_dataset, self.args.train_batch_size, True)

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, use_cpu=True, report_to=[], save_strategy="no"
    )
    trainer = Trainer(model=Model().double(), args=arguments, train_dataset=Doubles(Rows(40)))
    assert trainer.train().global_step == 2


class Doubles:
    """The same samples with f64 arrays."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        sample = self.rows[index]
        return {**sample, "x": sample["x"].astype("f8")}


def test_hugging_face_datasets():
    datasets = pytest.importorskip("datasets")
    columns = {"x": [[i, i] for i in range(10)], "name": list("abcdefghij")}
    table = datasets.Dataset.from_dict(columns)
    mapped = table.with_format("torch")
    theirs = list(torch.utils.data.DataLoader(mapped, 4))
    ours = list(millrace.DataLoader(mapped, 4))
    assert [batch["x"].tolist() for batch in ours] == [batch["x"].tolist() for batch in theirs]
    assert [batch["name"] for batch in ours] == [batch["name"] for batch in theirs]
    stream = table.to_iterable_dataset().with_format("torch")
    theirs = list(torch.utils.data.DataLoader(stream, 4))
    ours = list(millrace.DataLoader(stream, 4))
    assert [batch["x"].tolist() for batch in ours] == [batch["x"].tolist() for batch in theirs]


def test_hugging_face_stream_continues():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": list(range(40))})
    loader = millrace.DataLoader(table.to_iterable_dataset().with_format("torch"), 4)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    rest = [batch["x"].tolist() for batch in iterator]
    other = millrace.DataLoader(table.to_iterable_dataset().with_format("torch"), 4)
    other.load_state_dict(state)
    assert [batch["x"].tolist() for batch in other] == rest
    assert rest[0][0] == 12


def test_webdataset(tmp_path):
    wds = pytest.importorskip("webdataset")
    path = str(tmp_path / "a.tar")
    with wds.TarWriter(path) as tar:
        for i in range(10):
            tar.write({"__key__": f"{i:03}", "txt": str(i), "cls": i})
    pipeline = wds.WebDataset(path, shardshuffle=False).decode().to_tuple("txt", "cls")
    theirs = [(b[0], b[1].tolist()) for b in torch.utils.data.DataLoader(pipeline, 4)]
    ours = [(b[0], b[1].tolist()) for b in millrace.DataLoader(pipeline, 4)]
    assert ours == theirs


def test_torchvision(tmp_path):
    torchvision = pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(3):
            image.new("RGB", (8, 6), (i * 40, 20, 99)).save(tmp_path / name / f"{i}.png")
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.Resize((4, 4)), torchvision.transforms.ToTensor()]
    )
    dataset = torchvision.datasets.ImageFolder(str(tmp_path), transform)
    loader = millrace.DataLoader(dataset, 4)
    assert loader.path == "native", loader.why
    for ours, theirs in zip(loader, torch.utils.data.DataLoader(dataset, 4), strict=True):
        assert isinstance(ours, list)
        assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
        assert ours[1].dtype == theirs[1].dtype
    assert millrace.DataLoader(dataset, 4, path="python").path == "python-threads"
    dataset.transform = torchvision.transforms.Lambda(lambda picture: 0)
    assert millrace.DataLoader(dataset, 4).why != []


def test_distributed(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "0")
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        monkeypatch.setattr(distributed, "get_rank", lambda: 1)
        monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
        loader = millrace.DataLoader(Squares(10), 5)
        assert [batch[1].tolist() for batch in loader] == [[1, 3, 5, 7, 9]]
        assert loader.seed == 0
    finally:
        monkeypatch.undo()
        distributed.destroy_process_group()
