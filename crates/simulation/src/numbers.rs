//! A set of small numbers.

#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Vec<bool>);

impl Numbers {
    /// True if it was not in the set.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        let index = number as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, false);
        }
        !std::mem::replace(&mut self.0[index], true)
    }

    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(is_in) = self.0.get_mut(number as usize) {
            *is_in = false;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.get(number as usize).copied().unwrap_or_default()
    }
}

impl Extend<u64> for Numbers {
    fn extend<T: IntoIterator<Item = u64>>(&mut self, numbers: T) {
        for number in numbers {
            self.insert(number);
        }
    }
}
