//! User and password of SASL that come from files. A client keeps what it was made with, so when the
//! cluster refuses it, it is given what the files have then.

use super::settings::KafkaSettings;
use walrelay_base::secret::{Secret, SecretFile as _, SecretUnread};

const USER: &str = "sasl.username";
const PASSWORD: &str = "sasl.password";

#[derive(Clone)]
pub(super) struct SaslLogin {
    user: Secret,
    password: Secret,
}

impl SaslLogin {
    /// The login of a client that is made with these properties, of which the later one of a name
    /// wins. None if neither user nor password comes from a file.
    pub(super) fn of(
        settings: &KafkaSettings,
        properties: &[(String, String)],
    ) -> Option<SaslLogin> {
        let property = |name| {
            let value = &properties.iter().rev().find(|(it, _)| it == name)?.1;
            Some(settings.properties.get(name)?.with_value(value))
        };
        let login = SaslLogin { user: property(USER)?, password: property(PASSWORD)? };
        (login.user.is_of_file() || login.password.is_of_file()).then_some(login)
    }

    /// User and password, if they are others than those that the client has. From then on it has these.
    pub(super) fn changed(&mut self) -> Result<Option<(&str, &str)>, SecretUnread> {
        let user = self.user.current()?.into_owned();
        let password = self.password.current()?.into_owned();
        let now = SaslLogin { user, password };
        let is_other = (&now.user, &now.password) != (&self.user, &self.password);
        *self = now;
        Ok(is_other.then(|| (self.user.expose(), self.password.expose())))
    }
}
