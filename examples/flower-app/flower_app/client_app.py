"""The ClientApp, as `flwr new` makes it. What fedtide needs is marked."""

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedtide.deploy.strategy import asynchronous  # 1: fedtide
from flower_app.task import Net, load_data
from flower_app.task import train as train_model

app = ClientApp()


@app.train()
def train(message, context):
    """Train the model that came on this node's data."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = load_data(context.node_config["partition-id"])
    loss = train_model(net, loader, context.run_config["local-epochs"], message.content["config"]["lr"])
    metrics = MetricRecord({"num-examples": len(loader.dataset), "train_loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


app = asynchronous(app)  # 2: fedtide; it comes last
