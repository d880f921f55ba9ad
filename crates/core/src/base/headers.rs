//! The headers of a record that is kept.

use std::iter;

/// Names and values one behind another, each behind its length: one allocation, where a record of an
/// outbox has a dozen headers.
#[derive(Clone, Debug, Default)]
pub struct Headers(Vec<u8>);

fn first_part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    Some(part)
}

impl Headers {
    /// Copies names and values. A value of Postgres is shorter than 4 GiB.
    #[must_use]
    pub fn copy<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> Headers {
        let lengths = headers.clone().map(|(name, value)| 8 + name.len() + value.len());
        let mut bytes = Vec::with_capacity(lengths.sum());
        for part in headers.flat_map(|(name, value)| [name.as_bytes(), value]) {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        Headers(bytes)
    }

    /// Names and values as bytes.
    pub fn parts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &*self.0;
        iter::from_fn(move || Some((first_part(&mut rest)?, first_part(&mut rest)?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.parts().map(|(name, value)| (str::from_utf8(name).unwrap_or_default(), value))
    }

    #[must_use]
    pub fn to_vec(&self) -> Vec<(String, Vec<u8>)> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_names_and_values_in_their_order() {
        let headers: [(&str, &[u8]); 4] =
            [("id", b"e1"), ("", b""), ("größe", &[0, 255]), ("id", b"")];
        let copy = Headers::copy(headers.into_iter());
        assert_eq!(copy.iter().collect::<Vec<_>>(), headers);
        assert_eq!(copy.to_vec()[0], ("id".to_owned(), b"e1".to_vec()));
        assert_eq!(Headers::default().parts().count(), 0);
    }
}
