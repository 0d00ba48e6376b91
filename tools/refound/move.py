"""move.py TREE MAP: re-found a tree: modules are merged and moved, names renamed, references follow. See layout.py."""
from __future__ import annotations
import ast, importlib.util, re, subprocess, sys, textwrap
from collections import defaultdict
from pathlib import Path

TREE = Path(sys.argv[1]).resolve()
spec = importlib.util.spec_from_file_location("layout", sys.argv[2]); layout = importlib.util.module_from_spec(spec); spec.loader.exec_module(layout)
SRC = TREE / "src"
notes: list[str] = []
def note(*a): notes.append(" ".join(map(str, a)))

def modname(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

OLD: dict[str, Path] = {modname(p): p for p in sorted(SRC.rglob("*.py"))}
IS_PKG = {m for m, p in OLD.items() if p.name == "__init__.py"}
# ---- where modules go
GOES: dict[str, str] = {}          # old module -> new module
for new, olds in layout.MODULES.items():
    for old in olds:
        old = old if old.startswith("fedtide") else f"fedtide.{old}"
        if old not in OLD: sys.exit(f"no module {old}")
        if old in GOES: sys.exit(f"{old} twice")
        GOES[old] = new if new.startswith("fedtide") else f"fedtide.{new}"
for m in OLD:
    if m not in GOES: GOES[m] = layout.PACKAGES.get(m, m)
GROUP: dict[str, list[str]] = defaultdict(list)
for new, olds in layout.MODULES.items():
    n = new if new.startswith("fedtide") else f"fedtide.{new}"
    GROUP[n] = [o if o.startswith("fedtide") else f"fedtide.{o}" for o in olds]
for m in OLD:
    if GOES[m] and m not in GROUP[GOES[m]]: GROUP[GOES[m]].append(m)

TEXT = {m: p.read_text() for m, p in OLD.items()}
TREES = {m: ast.parse(t) for m, t in TEXT.items()}

def targets(node):
    if isinstance(node, ast.Name): yield node.id
    elif isinstance(node, (ast.Tuple, ast.List)):
        for e in node.elts: yield from targets(e)
    elif isinstance(node, ast.Starred): yield from targets(node.value)

def topdefs(body):
    for n in body:
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): yield n.name
        elif isinstance(n, ast.Assign):
            for t in n.targets: yield from targets(t)
        elif isinstance(n, (ast.AnnAssign, ast.AugAssign)): yield from targets(n.target)
        elif isinstance(n, (ast.If, ast.Try, ast.With, ast.For)):
            for f in ("body", "orelse", "finalbody"): yield from topdefs(getattr(n, f, []))
            for h in getattr(n, "handlers", []): yield from topdefs(h.body)
        elif isinstance(n, ast.TypeAlias) if hasattr(ast, "TypeAlias") else False: yield n.name.id
DEFS = {m: list(dict.fromkeys(topdefs(t.body))) for m, t in TREES.items()}

def imports_of(tree):
    """(node, module, alias) of every fedtide import."""
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and n.level == 0 and n.module and n.module.split(".")[0] in ("fedtide", "fedtide_lab"):
            for a in n.names: yield n, n.module, a

RE = {}
for k, v in layout.RENAMES.items():
    mod, name = k.rsplit(":", 1)
    mod = mod if mod.startswith("fedtide") else f"fedtide.{mod}"
    if mod not in DEFS or name not in DEFS[mod]:
        note("NO RENAME", mod, name); continue
    RE[mod, name] = v
# ---- constants that only their own module uses are private
USED = set()
def _note_uses(tree, me):
    b = {}
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and n.module and n.module.split(".")[0].startswith("fedtide"):
            for a in n.names:
                f = f"{n.module}.{a.name}"
                if f in OLD: b[a.asname or a.name] = f
                else: USED.add((n.module, a.name))
    for n in ast.walk(tree):
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id in b: USED.add((b[n.value.id], n.attr))
        if isinstance(n, ast.Call) and len(n.args) > 1 and isinstance(n.args[0], ast.Name) and n.args[0].id in b and isinstance(n.args[1], ast.Constant): USED.add((b[n.args[0].id], n.args[1].value))
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.startswith("fedtide."):
            x = n.value.replace(":", ".").rsplit(".", 1); USED.add((x[0], x[-1]))
for m, t in TREES.items(): _note_uses(t, m)
for d in ("tests", "benchmarks", "examples", "docs"):
    for p in (TREE / d).rglob("*.py"): _note_uses(ast.parse(p.read_text()), None)
for m, t in TREES.items():
    for n in t.body:
        names = [x for q in n.targets for x in targets(q)] if isinstance(n, ast.Assign) else [n.target.id] if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) else []
        for x in names:
            if x.isupper() and not x.startswith("_") and (m, x) not in USED and (m, x) not in RE and m not in layout.KEEP_PUBLIC: RE[m, x] = "_" + x
# ---- collisions in merged modules: private names get their old module's name
for new, olds in GROUP.items():
    seen = {}
    for o in olds:
        for d in DEFS[o]:
            if d in ("__all__", "__getattr__", "__dir__", "_HOMES"): continue
            n = RE.get((o, d), d)
            if n in seen:
                if n.startswith("_"):
                    base = o.rsplit(".", 1)[1]
                    RE[o, d] = f"_{base.upper()}{n}" if n.isupper() else f"_{base}{n}" if n.islower() else f"_{base.title().replace('_', '')}{n[1:]}"
                    note("auto", new, o, d, "->", RE[o, d])
                else: note("COLLISION", new, n, ":", seen[n], o)
            seen.setdefault(n, o)

def is_module(mod, name):
    return f"{mod}.{name}" in OLD and not (mod in IS_PKG and (name in DEFS[mod] or reexport(mod, name)))

def reexport(mod, name, depth=0):
    """Where a name that mod's source binds by import comes from."""
    if depth > 5: return None
    if name in DEFS.get(mod, ()): return mod, name
    for n in [y for x in TREES[mod].body for y in (x.body if isinstance(x, ast.If) else [x])] if mod in TREES else ():
        if isinstance(n, ast.ImportFrom) and n.module and n.module.startswith("fedtide"):
            for a in n.names:
                if (a.asname or a.name) == name: return reexport(n.module, a.name, depth + 1)
    return None

def dest(mod, name):
    """(new module, new name) of a symbol imported from mod."""
    at = reexport(mod, name)
    newname = RE.get(at, name) if at else name
    if at and (at[0] == mod or mod not in IS_PKG): return GOES[at[0]], newname
    return GOES.get(mod, mod), newname

# ---- scopes
class Scope:
    def __init__(self, node, parent, kind): self.node, self.parent, self.kind, self.bound, self.globals = node, parent, kind, set(), set()
def bind(scope, name):
    if name not in scope.globals: scope.bound.add(name)

class Resolver(ast.NodeVisitor):
    """Every Name node with the scope that binds it; every binding per scope."""
    def __init__(self, tree):
        self.module = Scope(tree, None, "module"); self.scope = self.module; self.uses = []; self.stores = defaultdict(list)
        self._collect(tree.body, self.module); self.todo = []
        self.block(tree.body)
    def block(self, body):
        for n in body: self.visit(n)
    def _collect(self, body, scope):
        for n in body: self._bindings(n, scope)
    def _bindings(self, n, scope):
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): bind(scope, n.name); 
        elif isinstance(n, ast.Lambda): return
        elif isinstance(n, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            for c in ast.walk(n):
                if isinstance(c, ast.NamedExpr): bind(scope, c.target.id)
            return
        elif isinstance(n, (ast.Import, ast.ImportFrom)):
            for a in n.names: bind(scope, a.asname or a.name.split(".")[0])
        elif isinstance(n, (ast.Global, ast.Nonlocal)): scope.globals |= {*n.names}; scope.bound -= {*n.names}
        elif isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del)): bind(scope, n.id)
        elif isinstance(n, ast.ExceptHandler) and n.name: bind(scope, n.name)
        elif isinstance(n, (ast.MatchAs, ast.MatchStar)) and n.name: bind(scope, n.name)
        elif isinstance(n, ast.MatchMapping) and n.rest: bind(scope, n.rest)
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for d in n.decorator_list: self._bindings(d, scope)
            return
        for c in ast.iter_child_nodes(n): self._bindings(c, scope)
    def lookup(self, name):
        s = self.scope; first = True
        while s:
            if name in s.bound and (s.kind != "class" or first): return s
            first = False; s = s.parent
        return None
    def visit_Name(self, n): self.uses.append((n, self.lookup(n.id), self.scope))
    def _function(self, n):
        if not isinstance(n, ast.Lambda):
            for d in n.decorator_list: self.visit(d)
            if n.returns: self.visit(n.returns)
        a = n.args
        for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
            if x is not None and x.annotation is not None: self.visit(x.annotation)
        for x in (*a.defaults, *a.kw_defaults):
            if x is not None: self.visit(x)
        outer = self.scope; self.scope = Scope(n, outer, "function")
        for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg):
            if x is not None: self.scope.bound.add(x.arg)
        body = [n.body] if isinstance(n, ast.Lambda) else n.body
        self._collect(body, self.scope); self.block(body); self.scope = outer
    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function
    def visit_ClassDef(self, n):
        for d in (*n.decorator_list, *n.bases, *[k.value for k in n.keywords]): self.visit(d)
        outer = self.scope; self.scope = Scope(n, outer, "class"); self._collect(n.body, self.scope); self.block(n.body); self.scope = outer
    def _comp(self, n):
        self.visit(n.generators[0].iter)
        outer = self.scope; self.scope = Scope(n, outer, "function")
        for g in n.generators:
            for t in targets(g.target): self.scope.bound.add(t)
        for i, g in enumerate(n.generators):
            self.visit(g.target)
            if i: self.visit(g.iter)
            for x in g.ifs: self.visit(x)
        if isinstance(n, ast.DictComp): self.visit(n.key); self.visit(n.value)
        else: self.visit(n.elt)
        self.scope = outer
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comp

def all_bound(tree):
    out = set()
    for n in ast.walk(tree):
        if isinstance(n, ast.Name) : out.add(n.id)
        elif isinstance(n, ast.arg): out.add(n.arg)
        elif isinstance(n, (ast.FunctionDef, ast.ClassDef)): out.add(n.name)
        elif isinstance(n, (ast.Import, ast.ImportFrom)):
            for a in n.names: out.add(a.asname or a.name.split(".")[0])
    return out

class Edits:
    def __init__(self, text):
        self.raw = text.encode(); self.lines = [0]
        for l in self.raw.splitlines(keepends=True): self.lines.append(self.lines[-1] + len(l))
        self.list = []
    def at(self, line, col): return self.lines[line - 1] + col
    def node(self, n, new): self.list.append((self.at(n.lineno, n.col_offset), self.at(n.end_lineno, n.end_col_offset), new))
    def span(self, a, b, new): self.list.append((a, b, new))
    def apply(self):
        out, pos = [], 0
        for a, b, new in sorted(set(self.list)):
            if a < pos: raise SystemExit(f"overlap at {self.raw[a:b]!r} {new!r}")
            out += [self.raw[pos:a], new.encode()]; pos = b
        return b"".join([*out, self.raw[pos:]]).decode()

MODULE_STR = re.compile(r"\bfedtide(?:_lab)?(?:\.[A-Za-z_]\w*)+(?::[A-Za-z_]\w*)?")
def map_dotted(text):
    def one(m):
        whole = m.group(0); path, colon, sym = whole.partition(":")
        parts = path.split(".")
        for i in range(len(parts), 0, -1):
            mod = ".".join(parts[:i])
            if mod in GOES:
                rest = parts[i:]
                if not rest and colon:
                    nm, s = dest(mod, sym); return f"{nm}:{s}"
                if GOES[mod] is None: return whole
                if rest:
                    nm, s = dest(mod, rest[0]); return ".".join([nm, s, *rest[1:]]) + colon + sym
                return GOES[mod] + colon + sym
        return whole
    return MODULE_STR.sub(one, text)

OLD_PATHS = {str(p.relative_to(SRC / "fedtide")): m for m, p in OLD.items() if m.startswith("fedtide.") and p.name != "__init__.py"}
PATH_STR = re.compile(r"(?<![\w/])((?:src/fedtide/|fedtide/)?)(" + "|".join(sorted(map(re.escape, OLD_PATHS), key=len, reverse=True)) + r")\b")
def map_paths(text):
    def one(m):
        new = GOES[OLD_PATHS[m.group(2)]].split(".")
        pre = m.group(1)
        tail = "/".join(new[1:]) + ".py"
        if new[0] != "fedtide": return "src/fedtide_lab/" + tail
        return pre + tail
    return PATH_STR.sub(one, text)

def rewrite(text, tree, me):
    """Return the text with references in their new places; me: its old module or None (tests)."""
    E = Edits(text); R = Resolver(tree); mine = GOES.get(me) if me else None
    bound = all_bound(tree)
    rename_global = {}   # module-level name -> new text (own defs)
    if me:
        for d in DEFS[me]:
            if RE.get((me, d), d) != d: rename_global[d] = RE[me, d]
    # imports: per scope
    scope_of = {}
    class Find(ast.NodeVisitor):
        pass
    parents = {}
    for n in ast.walk(tree):
        for c in ast.iter_child_nodes(n): parents[c] = n
    def scope_node(n):
        p = parents.get(n)
        while p is not None and not isinstance(p, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)): p = parents.get(p)
        return p
    mod_bind = {}   # (scope node, binding) -> old module
    sym_bind = {}   # (scope node, binding) -> new name
    keep_alias = {}
    def newbinding(newmod, oldbinding, scope):
        return newmod.rsplit(".", 1)[1]
    # first pass: which new module bindings collide
    mods = defaultdict(set)
    other = set()
    own_bind = {(a.asname or a.name): 1 for n, m, a in imports_of(tree) if is_module(m, a.name)}
    for n in ast.walk(tree):
        if isinstance(n, ast.arg): other.add(n.arg)
        elif isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store): other.add(n.id)
        elif isinstance(n, (ast.FunctionDef, ast.ClassDef)): other.add(n.name)
        elif isinstance(n, ast.Import):
            for a in n.names: other.add(a.asname or a.name.split(".")[0])
        elif isinstance(n, ast.ImportFrom):
            for a in n.names:
                if not (n.module and is_module(n.module, a.name)): other.add(a.asname or a.name)
    if me:
        for o in GROUP[mine]:
            for d in DEFS[o]: other.add(RE.get((o, d), d))
    used_binding = {}
    def pick(newmod):
        if newmod in used_binding: return used_binding[newmod]
        base = newmod.rsplit(".", 1)[1]; cand = base
        pkg = newmod.rsplit(".", 2)[-2]
        for cand in (base, f"{pkg}_{base}", f"{base}_module"):
            if cand not in other and cand not in used_binding.values(): break
        if cand != base: note("alias", me or "test", newmod, "as", cand)
        used_binding[newmod] = cand; return cand
    for n in ast.walk(tree):
        if isinstance(n, ast.Import):
            for a in n.names:
                if a.name.startswith("fedtide."): note("PLAIN IMPORT", me, a.name)
    for n in [x for x in ast.walk(tree) if isinstance(x, ast.ImportFrom) and x.level == 0 and x.module and x.module.split(".")[0] == "fedtide"]:
        sc = scope_node(n); new = defaultdict(list); drop = []
        for a in n.names:
            full = f"{n.module}.{a.name}"; b = a.asname or a.name
            if is_module(n.module, a.name):
                nm = GOES[full]
                if nm == mine: mod_bind[sc, b] = (full, None); continue
                nb = a.asname if (a.asname and a.asname not in (a.name,)) and nm.rsplit(".",1)[1] != a.asname else None
                if a.asname and a.asname != a.name: nb = a.asname
                else: nb = pick(nm)
                mod_bind[sc, b] = (full, nb)
                pkg, base = nm.rsplit(".", 1) if "." in nm else (None, nm)
                new[pkg].append(base if nb == base else f"{base} as {nb}")
            else:
                nm, nn = dest(n.module, a.name)
                if nm == mine and me:
                    if b != nn: sym_bind[sc, b] = nn
                    else: sym_bind[sc, b] = None
                    drop.append(b); continue
                if a.asname: new[nm].append(nn if nn == a.asname else f"{nn} as {a.asname}")
                elif nn != a.name and nn in other - {a.name}: new[nm].append(f"{nn} as {a.name}"); note("KEPT", me or "test", a.name, "for", nn)
                else:
                    new[nm].append(nn)
                    if nn != a.name: sym_bind[sc, b] = nn
        indent = " " * n.col_offset
        lines = [f"from {m} import {', '.join(dict.fromkeys(names))}" for m, names in new.items()]
        E.node(n, f"\n{indent}".join(lines) if lines else "pass  # DROP")
    # uses
    by_scope = {}
    def find_scope_key(scope, name):
        return (scope.node, name) if scope else None
    extra = set()
    for use, s, _ in R.uses:
        key = find_scope_key(s, use.id)
        if key in mod_bind:
            full, nb = mod_bind[key]; p = parents.get(use)
            if isinstance(p, ast.Attribute) and p.value is use:
                nm, nn = dest(full, p.attr)
                if nm == mine and me: E.node(p, nn)
                elif nm != GOES[full]:
                    extra.add(nm); E.node(p, f"{pick(nm)}.{nn}")
                else: E.node(p, nn if nb is None else f"{nb}.{nn}")
            elif nb is None: note("BARE SELF MODULE", me, use.id, use.lineno)
            elif nb != use.id: E.node(use, nb)
            # monkeypatch.setattr(module, "name", ...)
            if isinstance(p, ast.Call) and p.args and p.args[0] is use and len(p.args) > 1 and isinstance(p.args[1], ast.Constant) and isinstance(p.args[1].value, str):
                nn = dest(full, p.args[1].value)[1]
                if nn != p.args[1].value: E.node(p.args[1], repr(nn).replace("'", '"'))
        elif key in sym_bind and sym_bind[key]: E.node(use, sym_bind[key])
        elif s is R.module and use.id in rename_global: E.node(use, rename_global[use.id])
    # own definitions, global statements
    for n in tree.body if me else ():
        stack = [n]
        while stack:
            x = stack.pop()
            if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and x.name in rename_global:
                kw = {"FunctionDef": "def ", "AsyncFunctionDef": "async def ", "ClassDef": "class "}[type(x).__name__]
                at = E.at(x.lineno, x.col_offset) + len(kw)
                E.span(at, at + len(x.name), rename_global[x.name])
            elif isinstance(x, (ast.If, ast.Try)): stack += x.body + x.orelse
    for n in ast.walk(tree):
        if isinstance(n, ast.Global) and any(x in rename_global for x in n.names):
            E.node(n, "global " + ", ".join(rename_global.get(x, x) for x in n.names))
    if me in IS_PKG:
        for n in tree.body:
            if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id in ("__all__", "_HOMES") for t in n.targets):
                for c in ast.walk(n.value):
                    if isinstance(c, ast.Constant) and isinstance(c.value, str):
                        nn = dest(me, c.value)[1]
                        if n.targets[0].id == "_HOMES" and "fedtide." + c.value in GOES and not c.value in DEFS.get(me, ()) and c.value not in ("experiment", "plan", "study"): nn = GOES["fedtide." + c.value].removeprefix("fedtide.")
                        if nn != c.value: E.node(c, f'"{nn}"')
    out = E.apply()
    if extra:
        lines = "".join(f"from {m.rsplit('.', 1)[0]} import {m.rsplit('.', 1)[1]}" + ("" if used_binding[m] == m.rsplit('.', 1)[1] else f" as {used_binding[m]}") + "\n" for m in sorted(extra))
        mark = "from __future__ import annotations\n"
        out = out.replace(mark, mark + "\n" + lines, 1) if mark in out else lines + out
    # strings with dotted module names and paths
    out = map_paths(map_dotted_strings(map_string_imports(out)))
    return out

IMPORT_LINE = re.compile(r"^(\s*(?:>>> )?)from (fedtide(?:\.\w+)*) import ([\w, ]+?)(\s*)$")
def map_import_line(l):
    m = IMPORT_LINE.match(l)
    if not m or m[2] not in OLD: return None
    new = defaultdict(list)
    for name in m[3].split(","):
        name, _, alias = name.strip().partition(" as ")
        if not name: return None
        if is_module(m[2], name):
            nm = GOES[f"{m[2]}.{name}"]; pkg, base = nm.rsplit(".", 1) if "." in nm else ("", nm); nn = base
            alias = alias or (name if base != name else "")
        else: pkg, nn = dest(m[2], name); alias = alias or (name if nn != name else "")
        new[pkg].append(nn + (f" as {alias}" if alias and alias != nn else ""))
    return "\n".join(f"{m[1]}from {p} import {', '.join(n)}" for p, n in new.items())

def map_string_imports(text):
    try: tree = ast.parse(text)
    except SyntaxError: return text
    inside = set()
    for n in ast.walk(tree):
        if isinstance(n, (ast.Constant, ast.JoinedStr)) and n.end_lineno > n.lineno and (isinstance(n, ast.JoinedStr) or isinstance(n.value, str)): inside |= {*range(n.lineno, n.end_lineno + 1)}
    lines = text.split("\n")
    for i in inside:
        if (new := map_import_line(lines[i - 1])) is not None: lines[i - 1] = new
    return "\n".join(lines)

def map_dotted_strings(text):
    # import lines are done already; map the rest line by line, but not import statements
    lines = []
    for l in text.split("\n"):
        if re.match(r"\s*(from fedtide\S* import|import fedtide)", l): lines.append(l)
        else: lines.append(map_dotted(l))
    return "\n".join(lines)

def comment(doc):
    out = []
    for par in doc.split("\n\n"):
        ls = par.split("\n")
        if any(l.startswith((" ", "-", "|", "*")) for l in ls) : out += ["# " + l for l in ls]
        else: out += ["# " + l for l in textwrap.wrap(" ".join(ls), 122, break_long_words=False, break_on_hyphens=False)]
        out.append("#")
    return "\n".join(out[:-1])

def pieces(text):
    """docstring text, import segments, body."""
    t = ast.parse(text); raw = text.split("\n")
    doc = ast.get_docstring(t, clean=True); drop = set(); imps = []; types = []
    first = 0
    if doc is not None:
        d = t.body[0]
        for i in range(d.lineno - 1, d.end_lineno): drop.add(i)
    for n in t.body:
        if isinstance(n, (ast.Import, ast.ImportFrom)):
            seg = "\n".join(raw[n.lineno - 1:n.end_lineno])
            for i in range(n.lineno - 1, n.end_lineno): drop.add(i)
            if "__future__" not in seg: imps.append(seg)
        elif isinstance(n, ast.If) and isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING":
            for i in range(n.lineno - 1, n.end_lineno): drop.add(i)
            types += ["\n".join(raw[x.lineno - 1:x.end_lineno]) for x in n.body]
        elif isinstance(n, ast.Pass):
            for i in range(n.lineno - 1, n.end_lineno): drop.add(i)
    body = "\n".join(l for i, l in enumerate(raw) if i not in drop).strip("\n")
    return doc, imps, types, body

def order(new, olds):
    """Old modules, those first whose names others need as they are imported."""
    need = {o: {m2 for n in TREES[o].body if isinstance(n, ast.ImportFrom) and n.module and n.module.startswith("fedtide")
                for a in n.names for m2 in (n.module, f"{n.module}.{a.name}") if m2 in olds and m2 != o} for o in olds}
    done, out = set(), []
    while len(out) < len(olds):
        for o in olds:
            if o not in done and need[o] <= done: break
        else:
            o = next(x for x in olds if x not in done); note("CYCLE", new, o, need[o] - done)
        done.add(o); out.append(o)
    return out

written = {}
for new, olds in GROUP.items():
    if not olds: continue
    outs = {o: rewrite(TEXT[o], TREES[o], o) for o in olds}
    if len(olds) == 1:
        text = outs[olds[0]]
        text = re.sub(r"^\s*pass  # DROP\n", "", text, flags=re.M)
        if new in layout.DOCS: 
            d = ast.parse(text).body[0]; ls = text.split("\n"); ls[d.lineno-1:d.end_lineno] = ['"""' + layout.DOCS[new] + '"""']; text = "\n".join(ls)
    else:
        seq = order(new, olds); imps, types, bodies, docs = [], [], [], []
        for o in seq:
            doc, i, t, body = pieces(re.sub(r"^(\s*)pass  # DROP$", r"\1pass", outs[o], flags=re.M)) if "pass  # DROP" in outs[o] else pieces(outs[o])
            imps += i; types += t
            docs.append((o, doc)); bodies.append((o, doc, body))
        title = layout.DOCS.get(new)
        head = title or docs[0][1]
        text = f'"""{head}\n"""\n\n' if "\n" in head else f'"""{head}"""\n\n'
        text += "from __future__ import annotations\n\n" + "\n".join(dict.fromkeys(imps)) + "\n\n"
        if types:
            text += "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n" + "\n".join(dict.fromkeys(types)) + "\n\n"
        for k, (o, doc, body) in enumerate(bodies):
            if doc and (k or title):
                text += "\n\n" + comment(doc) + "\n\n"
            text += "\n" + body + "\n\n"
        # imported twice under one name from different places?
    path = SRC / Path(*new.split("."))
    path = path / "__init__.py" if any(o in IS_PKG for o in olds) else path.with_suffix(".py")
    if any(o in IS_PKG for o in olds) and len(olds) > 1: note("PKG MERGE", new, olds)
    written[path] = text
tests = [p for d in ("tests", "benchmarks", "examples", "docs") for p in (TREE / d).rglob("*.py")]
others = {}
for p in tests:
    try: others[p] = rewrite(p.read_text(), ast.parse(p.read_text()), None)
    except SyntaxError: note("SYNTAX", p)
    others[p] = re.sub(r"^(\s*)pass  # DROP\n", "", others[p], flags=re.M)
for p in [*TREE.rglob("*.md"), TREE / "pyproject.toml", TREE / "CMakeLists.txt", TREE / "Makefile", *TREE.glob(".ci/*"), *(TREE/"docs").rglob("*.ipynb"), *(TREE/".github").rglob("*.yml")]:
    if ".venv" in p.parts or "build" in p.parts or not p.is_file(): continue
    t = p.read_text(); u = map_paths("\n".join(x if (x := map_import_line(l)) is not None else map_dotted(l) for l in t.split("\n")))
    if u != t: others[p] = u; note("text", p.relative_to(TREE))
for p in written: written[p] = re.sub(r'^(\w+)( = TypeVar\(")\w+"', lambda m: f'{m[1]}{m[2]}{m[1]}"', written[p], flags=re.M)
for m, p in OLD.items(): p.unlink()
for p, t in {**written, **others}.items():
    p.parent.mkdir(parents=True, exist_ok=True); p.write_text(t)
for d in {q.parent for q in written}:
    while d != SRC:
        if not (d / "__init__.py").exists():
            m = ".".join(d.relative_to(SRC).parts)
            (d / "__init__.py").write_text('"""' + layout.DOCS.get(m, m) + '"""\n')
        d = d.parent
print("\n".join(sorted(notes)))
print(len(written), "modules")
