//! Which requests for a login are answered: `require_auth` with libpq's meaning, and a default that is
//! stricter than libpq's.
//!
//! Without TLS, and beyond this machine, whoever stands in the way can ask for the password itself, or
//! for an MD5 hash that is as good as one. Neither is answered there unless `require_auth` names that
//! method; a list of what is forbidden (`!none`) allows nothing, and neither does `sslmode=disable`.

use std::fmt;

/// How a server lets a client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// It asks for nothing.
    None,
    /// The password.
    Password,
    /// A hash of password and salt.
    Md5,
    /// A proof that gives nothing away.
    Scram,
}

/// The words of `require_auth`. Those without a method are never answered.
const WORDS: [(&str, Option<AuthMethod>); 7] = [
    ("none", Some(AuthMethod::None)),
    ("password", Some(AuthMethod::Password)),
    ("md5", Some(AuthMethod::Md5)),
    ("scram-sha-256", Some(AuthMethod::Scram)),
    ("gss", None),
    ("sspi", None),
    ("oauth", None),
];

impl AuthMethod {
    /// Of an authentication request of the protocol.
    pub(super) fn of(code: i32) -> Option<AuthMethod> {
        match code {
            0 => Some(AuthMethod::None),
            3 => Some(AuthMethod::Password),
            5 => Some(AuthMethod::Md5),
            10 => Some(AuthMethod::Scram),
            _ => None,
        }
    }

    /// The word that allows it.
    pub(super) fn word(self) -> &'static str {
        WORDS.iter().find(|(_, known)| *known == Some(self)).map_or("", |(word, _)| word)
    }
}

/// `require_auth`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequireAuth {
    /// These and no others.
    only: Option<Vec<AuthMethod>>,
    /// None of these.
    never: Vec<AuthMethod>,
}

/// A request that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAuth {
    /// What the server asks for.
    pub asked: AuthMethod,
    /// Because anybody on the way could read the answer, and not because `require_auth` forbids it.
    pub in_clear: bool,
}

impl RequireAuth {
    /// Reads the parameter's value; the words it takes when that is wrong: a word that is unknown or
    /// comes twice, or a list that both allows and forbids.
    pub(super) fn parse(text: &str) -> Result<RequireAuth, impl Iterator<Item = &'static str>> {
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        let forbids = words.iter().filter(|word| word.starts_with('!')).count();
        let known = |word: &&str| {
            let bare = word.strip_prefix('!').unwrap_or(word);
            WORDS.iter().position(|(known, _)| *known == bare)
        };
        let mut places: Vec<usize> = words.iter().filter_map(known).collect();
        let methods = places.iter().filter_map(|place| WORDS[*place].1).collect();
        places.sort_unstable();
        places.dedup();
        if places.len() != words.len() || !(forbids == 0 || forbids == words.len()) {
            return Err(WORDS.iter().map(|(word, _)| *word));
        }
        Ok(match forbids {
            0 => RequireAuth { only: Some(methods), never: Vec::new() },
            _ => RequireAuth { only: None, never: methods },
        })
    }

    /// May this request be answered over a link that others can read (`exposed`), or cannot?
    pub(super) fn judge(&self, asked: AuthMethod, exposed: bool) -> Result<(), RefusedAuth> {
        let in_clear = exposed && matches!(asked, AuthMethod::Password | AuthMethod::Md5);
        let (allowed, in_clear) = match &self.only {
            Some(only) => (only.contains(&asked), false),
            None if self.never.contains(&asked) => (false, false),
            None => (!in_clear, in_clear),
        };
        if allowed { Ok(()) } else { Err(RefusedAuth { asked, in_clear }) }
    }
}

impl fmt::Display for RefusedAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = match self.asked {
            AuthMethod::None => "no proof of who we are",
            AuthMethod::Password => "the password in clear text",
            AuthMethod::Md5 => "an MD5 hash of the password",
            AuthMethod::Scram => "a SCRAM-SHA-256 exchange",
        };
        let why = match self.in_clear {
            true => ", over a link that is not encrypted",
            false => ", which require_auth does not allow",
        };
        write!(f, "the server asks for {asked}{why}")
    }
}

impl std::error::Error for RefusedAuth {}

#[cfg(test)]
#[path = "require_auth_tests.rs"]
mod tests;
