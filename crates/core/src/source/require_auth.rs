//! `require_auth` with libpq's meaning, and a default that is stricter than libpq's.
//!
//! Without TLS, and beyond this machine, whoever controls the network can ask for the password itself,
//! or for an MD5 hash that is as good as one. Neither is answered there unless `require_auth` names
//! that method; a list of what is forbidden (`!none`) allows nothing, and neither does
//! `sslmode=disable`.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// The server asks for nothing.
    None,
    Password,
    Md5,
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
    /// The method that an authentication request with this code asks for.
    pub fn of(code: i32) -> Option<AuthMethod> {
        match code {
            0 => Some(AuthMethod::None),
            3 => Some(AuthMethod::Password),
            5 => Some(AuthMethod::Md5),
            10 => Some(AuthMethod::Scram),
            _ => None,
        }
    }

    /// The word of `require_auth` that allows it.
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(_, known)| *known == Some(self)).map_or("", |(word, _)| word)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequireAuth {
    Only(Vec<AuthMethod>),
    AllExcept(Vec<AuthMethod>),
}

impl Default for RequireAuth {
    fn default() -> RequireAuth {
        RequireAuth::AllExcept(Vec::new())
    }
}

/// An authentication request that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAuth {
    pub asked: AuthMethod,
    /// The reason is that others could read the answer, not that `require_auth` forbids it.
    pub in_clear: bool,
}

impl RequireAuth {
    /// Reads the parameter's value. For a word that is unknown or comes twice, or a list that both
    /// allows and forbids, the error is the list of supported words.
    pub fn parse(text: &str) -> Result<RequireAuth, Vec<&'static str>> {
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
            return Err(WORDS.iter().map(|(word, _)| *word).collect());
        }
        Ok(if forbids == 0 { RequireAuth::Only(methods) } else { RequireAuth::AllExcept(methods) })
    }

    /// May this request be answered? `exposed` means that others can read what is sent.
    pub fn judge(&self, asked: AuthMethod, exposed: bool) -> Result<(), RefusedAuth> {
        let readable = exposed && matches!(asked, AuthMethod::Password | AuthMethod::Md5);
        let (allowed, in_clear) = match self {
            RequireAuth::Only(only) => (only.contains(&asked), false),
            RequireAuth::AllExcept(never) if never.contains(&asked) => (false, false),
            RequireAuth::AllExcept(_) => (!readable, readable),
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
