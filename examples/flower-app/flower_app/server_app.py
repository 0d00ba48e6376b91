"""The ServerApp, as `flwr new` makes it. What fedtide needs is marked."""

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import ServerApp

from fedtide.deploy.strategy import PeriodicAsync  # 3: fedtide
from flower_app.task import Net, load_test_data, test

app = ServerApp()


@app.main()
def main(grid, context):
    """Train over all nodes, and print the accuracy after every period."""
    settings = context.run_config
    test_loader = load_test_data()

    def evaluate(server_round, arrays):
        net = Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        loss, accuracy = test(net, test_loader)
        print(f"period {server_round}: accuracy {accuracy:.3f}", flush=True)
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    strategy = PeriodicAsync(  # 4: fedtide, in the place of FedAvg(...)
        num_devices=settings["num-devices"], period=settings["period"], folder=settings["run-folder"]
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": settings["lr"]}),
        num_rounds=settings["num-rounds"],
        evaluate_fn=evaluate,
    )
