"""golden.py OUT.json: hashes of many small runs with the installed fedtide. Compare: golden.py --compare A.json B.json."""
import hashlib, json, os, sys, tempfile, time
os.environ.setdefault("FEDTIDE_ISA", "avx2")

BASE = ["data.name=synthetic", "data.num_train=1200", "data.num_test=200", "data.num_shards=60", "fleet.num_devices=12",
        "timeline.horizon=4", "policy.limit=4", "learning.model=softmax", "learning.batch_size=20", "radio.num_symbols=30000"]
def cases():
    out = {}
    def add(name, *words): out[name] = BASE + list(words)
    for f in ("periodic", "fedavg", "fedasync", "fedbuff"):
        add(f"framework-{f}", f"framework={f}")
        add(f"framework-{f}-cnn", f"framework={f}", "learning.model=paper_cnn", "timeline.horizon=1")
    for c in ("sparse_quantized", "dead_zone", "top_k", "qsgd", "sign", "error_feedback", "ideal"):
        add(f"codec-{c}", f"codec.name={c}")
    add("codec-ef21", "codec.name=ef21", "policy.combiner=ef21")
    add("codec-ef-qsgd", "codec.name=error_feedback", "codec.args={inner: qsgd}")
    for s in ("data_importance","random","best_channel","age_based","round_robin","proportional_fair","threshold","soft_rate_label",
              "whittle_age","drift_plus_penalty","max_loss","oort","best_channel_best_norm","best_of_random_subsets"):
        add(f"scheduler-{s}", f"policy.scheduler={s}")
    for c in ("average_models","average_deltas","mix","mix_hinge","buffered_mean","server_momentum","server_adam","server_yogi","fadas","ca2fl",
              "mifa","fedat","asyncfeded","median","trimmed_mean","krum","clipped_mean"):
        add(f"combiner-{c}", f"policy.combiner={c}")
        add(f"combiner-{c}-dense", f"policy.combiner={c}", "codec.name=dead_zone", "policy.age_base=0.846")
    add("vote", "codec.name=sign", "codec.args={scaled: false}", "policy.combiner=majority_vote")
    add("scaffold", "learning.trainer=scaffold", "policy.combiner=scaffold", "codec.name=dead_zone")
    add("ota", "radio.access=over_the_air", "codec.name=ideal")
    add("momentum", "learning.trainer_args={momentum: 0.5}")
    for p in ("iid","shards","dirichlet","slow_labels","virtual_iid","virtual_labels","virtual_dirichlet"):
        add(f"partition-{p}", f"data.partition={p}")
    add("partition-speed_sizes", "data.partition=speed_sizes", "data.size_spread=0.5"); add("duration-cycles", "fleet.duration=cycles", "fleet.cycles_per_sample=1000000")
    add("sizes", "data.partition=iid", "data.size_spread=0.7")
    for d in ("shifted_exponential","log_normal","shifted_exponential_by_size"):
        add(f"duration-{d}", f"fleet.duration={d}")
    for a in ("markov","battery","daily"):
        add(f"availability-{a}", f"fleet.availability={a}")
    for c in ("rician","nakagami","jakes","rayleigh_by_device"):
        add(f"channel-{c}", f"radio.channel={c}")
    for c in ("log_distance","uma","umi"):
        add(f"coverage-{c}", f"radio.coverage={c}")
    for c in ("noisy","pilots","packet_error"):
        add(f"csi-{c}", f"radio.csi={c}")
    for a in ("equal_symbols","max_sum_rate","alpha_fair","latency_minimal","resource_blocks"):
        add(f"allocation-{a}", f"radio.allocation={a}")
    for d in ("broadcast","unicast"):
        add(f"downlink-{d}", f"radio.downlink={d}", "radio.symbol_rate=1000000")
    add("energy", "fleet.joules_per_sample=0.001", "radio.joules_per_symbol=0.0001", "radio.symbol_rate=1000000")
    add("cmos", "fleet.energy=cmos")
    add("upload-time", "timeline.upload_time=0.05")
    add("released", "profile=released-code")
    add("small_cnn", "learning.model=small_cnn", "timeline.horizon=1")
    add("steps", "learning.local_steps=5", "learning.local_epochs=null", "learning.schedule=cosine")
    add("training-loss", "learning.training_loss=true")
    add("N100", "fleet.num_devices=100", "policy.limit=30", "data.num_train=2000", "data.num_shards=200", "timeline.horizon=1")
    add("N3000", "fleet.num_devices=3000", "policy.limit=30", "data.partition=virtual_labels", "timeline.horizon=1")
    add("N20000", "fleet.num_devices=20000", "policy.limit=30", "data.partition=virtual_labels", "timeline.horizon=1")
    for s in ("paper","macro_cell","walking","iot_battery","phones","cross_silo"):
        out[f"scenario-{s}"] = [f"scenario={s}", "data.name=synthetic", "data.num_train=4000", "data.num_test=200", "learning.model=softmax"]
    return out

def h(*parts):
    m = hashlib.sha256()
    for p in parts: m.update(p if isinstance(p, bytes) else repr(p).encode())
    return m.hexdigest()[:20]

def main(out):
    import fedtide, numpy as np
    found = {}
    for name, words in cases().items():
        t = time.time()
        try:
            e = fedtide.experiment(*words)
            if name.startswith("scenario"):
                e = fedtide.experiment(*words, f"timeline.horizon={e.timeline.horizon/12}")
            r = fedtide.simulate(e)
            u = r.uploads(); f = r.frame()
            g = lambda d, cols: [(c, [None if x != x else x for x in np.asarray(d[c], float).tolist()]) for c in cols]
            found[name] = {"digest": e and fedtide.config.digest(e), "model": h(np.asarray(r.model).tobytes()),
               "uploads": h(g(u, ["index","time","device","age","capacity","symbols","budget_bits","sent_bits","num_kept","weight"])),
               "scores": h(g(f, ["index","time","test_accuracy","test_loss","train_loss","label_variance"])),
               "spent": h(g(f, ["symbols","bits","samples_used","samples_trained"])), "n": len(r.rounds)}
        except Exception as x:
            found[name] = {"error": f"{type(x).__name__}: {x}"[:300]}
        print(f"{name:32s} {time.time()-t:5.1f}s {found[name].get('error', found[name].get('n'))}", flush=True)
    json.dump(found, open(out, "w"), indent=1)

if sys.argv[1] == "--compare":
    a, b = (json.load(open(x)) for x in sys.argv[2:4]); bad = 0
    for k in sorted({*a, *b}):
        if a.get(k) != b.get(k):
            bad += 1; print(k, {x: (a.get(k, {}).get(x), b.get(k, {}).get(x)) for x in {*a.get(k, {}), *b.get(k, {})} if a.get(k, {}).get(x) != b.get(k, {}).get(x)})
    print(f"{len(a)} cases, {bad} differ")
else:
    main(sys.argv[1])
