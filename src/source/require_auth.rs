//! Which requests for a login are answered: `require_auth` with libpq's meaning, and a default that is stricter
//! than libpq's.
//!
//! Without TLS, and beyond this machine, whoever stands in the way can ask for the password itself, or for an
//! MD5 hash that is as good as one. Neither is answered there unless `require_auth` names that method; a list of
//! what is forbidden (`!none`) allows nothing, and neither does `sslmode=disable`.

use std::fmt;

/// How a server lets a client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
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
const WORDS: [(&str, Option<Method>); 7] = [
    ("none", Some(Method::None)),
    ("password", Some(Method::Password)),
    ("md5", Some(Method::Md5)),
    ("scram-sha-256", Some(Method::Scram)),
    ("gss", None),
    ("sspi", None),
    ("oauth", None),
];

impl Method {
    /// Of an authentication request of the protocol.
    #[must_use]
    pub fn of(code: i32) -> Option<Method> {
        match code {
            0 => Some(Method::None),
            3 => Some(Method::Password),
            5 => Some(Method::Md5),
            10 => Some(Method::Scram),
            _ => None,
        }
    }
}

/// `require_auth`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequireAuth {
    /// These and no others.
    only: Option<Vec<Method>>,
    /// None of these.
    never: Vec<Method>,
}

/// A request that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server asks for {asked}, which is not answered")]
pub struct Unanswered {
    /// What it asks for.
    pub asked: Method,
    /// Because anybody on the way could read the answer, and not because `require_auth` forbids it.
    pub in_clear: bool,
}

impl RequireAuth {
    /// Reads the parameter's value; the words it takes when that is wrong.
    ///
    /// # Errors
    /// A word that is unknown or comes twice, or a list that both allows and forbids.
    pub fn parse(text: &str) -> Result<RequireAuth, impl Iterator<Item = &'static str>> {
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        let forbids = words.iter().filter(|word| word.starts_with('!')).count();
        let bare = |word: &&str| word.strip_prefix('!').unwrap_or(word).to_owned();
        let known = |word: &str| WORDS.iter().find(|(known, _)| *known == word);
        let mut seen: Vec<String> = words.iter().map(bare).collect();
        let all_known = seen.iter().all(|word| known(word).is_some());
        let methods = seen.iter().filter_map(|word| known(word)?.1).collect();
        seen.sort();
        let twice = seen.windows(2).any(|pair| pair[0] == pair[1]);
        if !all_known || twice || !(forbids == 0 || forbids == words.len()) {
            return Err(WORDS.iter().map(|(word, _)| *word));
        }
        Ok(match forbids {
            0 => RequireAuth { only: Some(methods), never: Vec::new() },
            _ => RequireAuth { only: None, never: methods },
        })
    }

    /// May this request be answered over a link that others can read (`exposed`), or cannot?
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, asked: Method, exposed: bool) -> Result<(), Unanswered> {
        let in_clear = exposed && matches!(asked, Method::Password | Method::Md5);
        match &self.only {
            Some(only) if only.contains(&asked) => Ok(()),
            Some(_) => Err(Unanswered { asked, in_clear: false }),
            None if self.never.contains(&asked) => Err(Unanswered { asked, in_clear: false }),
            None if in_clear => Err(Unanswered { asked, in_clear }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::None => "no proof of who we are",
            Method::Password => "the password in clear text",
            Method::Md5 => "an MD5 hash of the password",
            Method::Scram => "a SCRAM-SHA-256 exchange",
        })
    }
}

/// The word that allows a method.
#[must_use]
pub fn word(method: Method) -> &'static str {
    WORDS.iter().find(|(_, known)| *known == Some(method)).map_or("", |(word, _)| word)
}

#[cfg(test)]
#[path = "require_auth_tests.rs"]
mod tests;
