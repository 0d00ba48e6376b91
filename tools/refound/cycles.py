import ast, sys, importlib.util, pathlib, collections
tree=pathlib.Path(sys.argv[1]); SRC=tree/"src"
spec=importlib.util.spec_from_file_location("layout", sys.argv[2]); L=importlib.util.module_from_spec(spec); spec.loader.exec_module(L)
def mod(p):
    q=p.relative_to(SRC).with_suffix("").parts
    return ".".join(q[:-1] if q[-1]=="__init__" else q)
OLD={mod(p):ast.parse(p.read_text()) for p in SRC.rglob("*.py")}
full=lambda x: x if x.startswith("fedtide") else "fedtide."+x
G={full(o):full(n) for n,os in L.MODULES.items() for o in os}
for m in OLD: G.setdefault(m, L.PACKAGES.get(m,m) or m)
E=collections.defaultdict(lambda: collections.defaultdict(set))
for m,t in OLD.items():
    for n in t.body:
        if isinstance(n,ast.ImportFrom) and n.module and n.module.startswith("fedtide"):
            for a in n.names:
                f=f"{n.module}.{a.name}"; to=f if f in OLD else n.module
                if to in G and G[to]!=G[m]: E[G[m]][G[to]].add(f"{m.removeprefix('fedtide.')}->{to.removeprefix('fedtide.')}")
                if n.module in G and f in OLD and G[n.module]!=G[m]: E[G[m]][G[n.module]].add("pkg")
idx={};low={};st=[];on=set();out=[];c=[0]
sys.setrecursionlimit(10000)
def go(v):
    idx[v]=low[v]=c[0];c[0]+=1;st.append(v);on.add(v)
    for w in E[v]:
        if w not in idx: go(w);low[v]=min(low[v],low[w])
        elif w in on: low[v]=min(low[v],idx[w])
    if low[v]==idx[v]:
        s=[]
        while True:
            w=st.pop();on.discard(w);s.append(w)
            if w==v: break
        if len(s)>1: out.append(s)
for v in list(G.values()):
    if v not in idx: go(v)
for s in out:
    print("CYCLE", s)
    for a in s:
        for b in s:
            if b in E[a]: print("   ", a,"->",b, sorted(E[a][b])[:6])
