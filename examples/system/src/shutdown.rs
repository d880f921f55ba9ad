//! When a service is told to end. There is one listener for the whole process: a listener of Tokio sees
//! only the signals that come after it was made, so one that is made later can miss the only one.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Knows whether SIGTERM or SIGINT has come, however long ago.
#[derive(Clone)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Listens from now on. The signals no longer end the process by themselves.
    pub fn listen() -> std::io::Result<Shutdown> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.send_replace(true);
        });
        Ok(Shutdown(stopped))
    }

    /// Completes when the process is told to end, at once if it was told before.
    pub async fn wait(mut self) {
        // An error means that the listener has ended with the runtime.
        let _gone = self.0.wait_for(|stop| *stop).await.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn who_waits_after_the_signal_is_told_too() {
        let shutdown = Shutdown::listen().unwrap();
        // WHEN the only signal has come, and somebody has waited for it
        let sent = Command::new("kill").args(["-TERM", &id().to_string()]).status();
        assert!(sent.unwrap().success());
        let waiting = async {
            shutdown.clone().wait().await;
            // THEN it is not lost for those who begin to wait now
            shutdown.wait().await;
        };
        assert!(tokio::time::timeout(Duration::from_secs(10), waiting).await.is_ok());
    }
}
