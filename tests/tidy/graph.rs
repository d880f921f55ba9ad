//! Which file of the program and its crates imports which, and the circles among them.
//!
//! Paths are followed to the file that defines what they name, through re-exports. A module's
//! declaration of a child, and a re-export of what it does not use itself, import nothing.

use std::collections::{BTreeSet, HashMap};

use crate::{CRATES, Crate, Source, is_test_file, text};

/// Longest chain of re-exports that is followed.
const HOPS_MAX: usize = 8;

/// `from` uses something that `to` defines, on this line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) line: usize,
}

struct Module {
    file: String,
    path: Vec<String>,
    uses: Vec<Use>,
    /// Macros that it puts into the root of its crate.
    macros: Vec<String>,
    /// The code without tests and without its `use` statements, line for line.
    rest: String,
}

/// One leaf of a `use` statement.
struct Use {
    line: usize,
    name: String,
    path: Vec<String>,
    is_public: bool,
}

/// All modules, by their paths, which begin with the name of their crate.
pub(crate) struct Tree {
    modules: Vec<Module>,
    by_path: HashMap<String, usize>,
}

impl Tree {
    pub(crate) fn new(sources: &[Source]) -> Tree {
        let files = sources.iter().filter(|source| !is_test_file(&source.path));
        let modules: Vec<Module> = files.map(Module::read).collect();
        let paths = modules.iter().enumerate();
        let by_path = paths.map(|(at, module)| (module.path.join("::"), at)).collect();
        Tree { modules, by_path }
    }

    /// Every import between two files.
    pub(crate) fn imports(&self) -> Vec<Import> {
        let mut found = BTreeSet::new();
        for module in &self.modules {
            let leaves = module.uses.iter().filter(|it| !it.is_public || module.mentions(&it.name));
            let leaves = leaves.map(|it| (it.line, it.path.clone()));
            for (line, path) in leaves.chain(module.paths()) {
                let Some(to) = self.file_of(module, &path, HOPS_MAX) else { continue };
                if to != module.file {
                    let from = module.file.clone();
                    found.insert(Import { from, to: to.to_owned(), line });
                }
            }
        }
        found.into_iter().collect()
    }

    /// The file that defines what `path` names when it stands in `module`.
    fn file_of<'t>(&'t self, module: &'t Module, path: &[String], hops: usize) -> Option<&'t str> {
        let (first, rest) = path.split_first()?;
        let mut at = module.path.clone();
        let rest = match first.as_str() {
            "crate" => {
                at.truncate(1);
                rest
            }
            name if CRATES.iter().any(|it| it.name == name) => {
                at = vec![name.to_owned()];
                rest
            }
            "self" => rest,
            "super" => {
                at.pop()?;
                let ups = rest.iter().take_while(|part| *part == "super").count();
                at.truncate(at.len().checked_sub(ups)?);
                &rest[ups..]
            }
            _ => path,
        };
        let is_relative = rest.len() == path.len();
        let mut here = self.module(&at)?;
        for (depth, part) in rest.iter().enumerate() {
            at.push(part.clone());
            if let Some(child) = self.module(&at) {
                here = child;
                continue;
            }
            if part == "*" {
                return Some(&here.file);
            }
            if let Some(through) = here.uses.iter().find(|it| it.name == *part) {
                let path: Vec<String> =
                    through.path.iter().chain(&rest[depth + 1..]).cloned().collect();
                return if hops > 0 { self.file_of(here, &path, hops - 1) } else { None };
            }
            if let Some(defined) = self.exported_macro(&at) {
                return Some(&defined.file);
            }
            // A relative path that names neither a child nor what is in scope is of another crate.
            return (depth > 0 || !is_relative).then_some(&here.file);
        }
        None
    }

    /// The module that defines the macro which `path` names, in the root of a crate.
    fn exported_macro(&self, path: &[String]) -> Option<&Module> {
        let [crate_name, name] = path else { return None };
        let mut of_crate = self.modules.iter().filter(|it| it.path.first() == Some(crate_name));
        of_crate.find(|module| module.macros.contains(name))
    }

    fn module(&self, path: &[String]) -> Option<&Module> {
        self.by_path.get(&path.join("::")).map(|at| &self.modules[*at])
    }
}

impl Module {
    fn read(source: &Source) -> Module {
        let code = text::without_tests(&source.code);
        let (mut rest, mut uses, mut statement) = (String::new(), Vec::new(), None);
        for (line, number) in code.lines().zip(1..) {
            let words = line.trim_start();
            let visible = words.strip_prefix("pub").map(|rest| match rest.strip_prefix('(') {
                Some(limited) => limited.split_once(") ").map_or("", |(_, rest)| rest),
                None => rest.trim_start(),
            });
            if let Some(tree) = visible.unwrap_or(words).strip_prefix("use ") {
                statement = Some((number, visible.is_some(), tree.to_owned()));
            } else if let Some((_, _, tree)) = &mut statement {
                tree.push_str(words);
            } else {
                rest.push_str(line);
            }
            rest.push('\n');
            if let Some((line, is_public, tree)) = statement.take_if(|it| it.2.contains(';')) {
                let mut leaves = Vec::new();
                expand(tree.trim_end_matches(';'), &[], &mut leaves);
                let leaf = |(name, path)| Use { line, name, path, is_public };
                uses.extend(leaves.into_iter().map(leaf));
            }
        }
        let exported = rest.split("#[macro_export]").skip(1).filter_map(|after| {
            let name = after.trim_start().strip_prefix("macro_rules! ")?;
            name.split(|c: char| !is_word(c)).next().map(str::to_owned)
        });
        let macros = exported.collect();
        Module { file: source.path.clone(), path: module_path(&source.path), uses, macros, rest }
    }

    fn mentions(&self, name: &str) -> bool {
        self.rest.split(|c: char| !is_word(c)).any(|word| word == name)
    }

    /// Every path with a `::` in the code, with its line.
    fn paths(&self) -> impl Iterator<Item = (usize, Vec<String>)> {
        let words = |line: &'_ str| -> Vec<Vec<String>> {
            let paths = line.split(|c: char| !is_word(c) && c != ':');
            let parts = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
            paths.filter(|path| path.contains("::")).map(parts).collect()
        };
        let lines = self.rest.lines().zip(1..);
        lines.flat_map(move |(text, line)| words(text).into_iter().map(move |path| (line, path)))
    }
}

/// The leaves of a `use` tree: the name in scope, and its path.
fn expand(tree: &str, prefix: &[String], leaves: &mut Vec<(String, Vec<String>)>) {
    let tree = tree.trim();
    let (head, list) = match tree.split_once('{') {
        Some((head, list)) => (head.trim_end_matches("::"), list.strip_suffix('}')),
        None => (tree, None),
    };
    let (head, alias) = match head.split_once(" as ") {
        Some((head, alias)) => (head, Some(alias.trim())),
        None => (head, None),
    };
    let parts = head.split("::").map(str::trim).filter(|part| !part.is_empty());
    let mut path: Vec<String> = prefix.iter().cloned().chain(parts.map(str::to_owned)).collect();
    if let Some(list) = list {
        split_list(list).into_iter().for_each(|part| expand(part, &path, leaves));
        return;
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(last) = path.last() {
        leaves.push((alias.unwrap_or(last).to_owned(), path));
    }
}

/// The parts of a brace list, which may hold lists.
fn split_list(list: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `src/sink/file/mod.rs` as `["walrelay", "sink", "file"]`, the crate root as its name.
fn module_path(file: &str) -> Vec<String> {
    let (of, inner) = crate_of(file);
    let inner = inner.trim_end_matches(".rs");
    let inner = inner.strip_suffix("/mod").unwrap_or(inner);
    let parts = inner.split('/').filter(|part| !matches!(*part, "lib" | "mod"));
    std::iter::once(of.name).chain(parts).map(str::to_owned).collect()
}

/// The path of a file as the program names its module.
pub(crate) fn inner_path(file: &str) -> String {
    let (of, inner) = crate_of(file);
    format!("{}{inner}", of.modules)
}

/// The crate of a file, the program if it is in none, and the path of the file in the crate.
fn crate_of(file: &str) -> (&'static Crate, &str) {
    let mut found = CRATES.iter().filter_map(|it| Some((it, file.strip_prefix(it.folder)?)));
    found.next().unwrap_or((&CRATES[0], file))
}

/// Files that import each other, however long the way: each circle with all of its files.
pub(crate) fn circles(imports: &[Import]) -> Vec<Vec<&str>> {
    let mut next: HashMap<&str, Vec<&str>> = HashMap::new();
    for import in imports {
        next.entry(&import.from).or_default().push(&import.to);
    }
    let reached = |from: &'_ str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            let fresh = next.get(file).into_iter().flatten().filter(|to| seen.insert(**to));
            open.extend(fresh.collect::<Vec<_>>());
        }
        seen
    };
    let reach: HashMap<&str, BTreeSet<&str>> =
        next.keys().map(|file| (*file, reached(file))).collect();
    let mut found = BTreeSet::new();
    for (file, to) in &reach {
        let back = |other: &&&str| reach.get(**other).is_some_and(|back| back.contains(file));
        let circle: Vec<&str> = to.iter().filter(back).copied().collect();
        found.insert(circle);
    }
    found.into_iter().filter(|circle| circle.len() > 1).collect()
}
