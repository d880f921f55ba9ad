//! The key table as a tree: what a walk over a TOML file, a schema or a page of output follows.

use std::sync::LazyLock;

use super::keys::{self, Key};

/// A place in the configuration tree that the table spans.
#[derive(Debug)]
pub(crate) enum Node {
    /// A value.
    Leaf(Key),
    /// A section.
    Table(Vec<(String, Node)>),
    /// An array of sections.
    Array(Box<Node>),
    /// A table of values under names that the user chooses.
    Map(Key),
}

impl Node {
    /// The node of `name` in this section.
    pub(crate) fn child(&self, name: &str) -> Option<&Node> {
        match self {
            Node::Table(fields) => fields.iter().find(|(own, _)| own == name).map(|(_, node)| node),
            Node::Leaf(_) | Node::Array(_) | Node::Map(_) => None,
        }
    }

    /// The names this section knows, in the order of the table.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Node::Table(fields) => fields.iter().map(|(name, _)| name.as_str()).collect(),
            Node::Leaf(_) | Node::Array(_) | Node::Map(_) => Vec::new(),
        }
    }
}

static ROOT: LazyLock<Node> = LazyLock::new(|| {
    let mut root = Node::Table(Vec::new());
    for key in keys::all() {
        plant(&mut root, &key.path, key);
    }
    root
});

/// The tree that the table spans.
pub(crate) fn root() -> &'static Node {
    &ROOT
}

fn plant(node: &mut Node, rest: &str, key: &Key) {
    let node = match node {
        Node::Array(element) => element.as_mut(),
        Node::Leaf(_) | Node::Table(_) | Node::Map(_) => node,
    };
    let Node::Table(fields) = node else { return };
    let (step, below) = rest.split_once('.').unwrap_or((rest, ""));
    let name = step.trim_end_matches("[]");
    let at = fields.iter().position(|(own, _)| own == name).unwrap_or_else(|| {
        let section = Node::Table(Vec::new());
        let fresh = match below {
            "" => Node::Leaf(key.clone()),
            "*" => Node::Map(key.clone()),
            _ if step.ends_with("[]") => Node::Array(Box::new(section)),
            _ => section,
        };
        fields.push((name.to_owned(), fresh));
        fields.len() - 1
    });
    if !below.is_empty() && below != "*" {
        plant(&mut fields[at].1, below, key);
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
