//! Rights of a user at a private Kafka that has an authorizer: one request of the wire protocol.

use std::time::Duration;

use crate::kafka::ask;
use crate::{HarnessError, Kafka, KafkaListener, KafkaOptions, Result, free_port};

/// The codes of the wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read = 3,
    Write = 4,
    Describe = 8,
}

const CREATE_ACLS: i16 = 30;
/// The last that is written without tagged fields.
const VERSION: i16 = 1;
const TOPIC: u8 = 2;
const LITERAL: u8 = 3;
const ALLOW: u8 = 3;
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A broker with a second listener for this user, who has no rights, and the port of that listener. The
/// first one is for the test itself.
pub fn start(user: &str, password: &str) -> Result<(Kafka, u16)> {
    let port = free_port()?;
    let listener =
        KafkaListener { name: "STRICT", protocol: "SASL_PLAINTEXT", port, advertised_port: port };
    let extra = format!(
        "sasl.enabled.mechanisms=PLAIN\n\
         listener.name.strict.plain.sasl.jaas.config=\
         org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}=\"{password}\";\n\
         authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
         super.users=User:ANONYMOUS\n"
    );
    let kafka = Kafka::start_with(&KafkaOptions { listener: Some(listener), extra })?;
    Ok((kafka, port))
}

/// Lets the user do this with a topic. The listener at `port` must belong to a super user.
pub fn allow(port: u16, user: &str, topic: &str, operations: &[Operation]) -> Result<()> {
    let said = ask(port, (CREATE_ACLS, VERSION), &body(user, topic, operations), ANSWER_LIMIT);
    let answer = said.map_err(HarnessError::io("asking Kafka for rights"))?;
    // Throttle time, number of results; each begins with its error.
    let refused = answer.get(8..10).is_none_or(|code| code != [0, 0]);
    if refused {
        return Err(HarnessError::Tool {
            tool: "CreateAcls".into(),
            output: format!("{answer:?}"),
        });
    }
    Ok(())
}

fn body(user: &str, topic: &str, operations: &[Operation]) -> Vec<u8> {
    let mut body = Vec::new();
    let text = |body: &mut Vec<u8>, text: &str| {
        body.extend((text.len() as i16).to_be_bytes());
        body.extend(text.as_bytes());
    };
    body.extend((operations.len() as i32).to_be_bytes());
    for operation in operations {
        body.push(TOPIC);
        text(&mut body, topic);
        body.push(LITERAL);
        text(&mut body, &format!("User:{user}"));
        text(&mut body, "*");
        body.extend([*operation as u8, ALLOW]);
    }
    body
}
