//! Stand-in for the SQL side's connection: first host, no TLS.

use tokio_postgres::{Client, NoTls};

use super::settings::ConnInfo;
use crate::error::{Exit, Fault};
use crate::secret::Secret;

/// A connection for SQL.
pub struct Sql {
    /// The client.
    pub client: Client,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect: {0}")]
pub struct ConnectError(#[from] tokio_postgres::Error);

impl ConnectError {
    /// For people.
    #[must_use]
    pub fn fault(&self) -> Fault {
        Fault::new(Exit::Source, "source.connect", self.to_string(), "source.url", "")
    }
}

/// Connects.
pub async fn connect(info: &ConnInfo) -> Result<Sql, ConnectError> {
    let mut config = tokio_postgres::Config::new();
    config.user(&info.user).dbname(&info.dbname).application_name(&info.application_name);
    for host in &info.hosts {
        config.host(&host.name).port(host.port);
    }
    if let Some(password) = &info.password {
        config.password(Secret::expose(password));
    }
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(Sql { client })
}
