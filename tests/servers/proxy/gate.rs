//! Holds replies back, to find out whether a client waits for them.

use std::time::Duration;

use tokio::sync::watch;

/// How long a client has time to end without the reply that is held back. It needs no more than a turn of the runtime.
const PATIENCE: Duration = Duration::from_millis(50);

/// Between the server's replies and the client.
#[derive(Default)]
pub(super) struct Gate(watch::Sender<State>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing is measured, everything passes.
    #[default]
    Off,
    /// Replies pass until the next request.
    Open,
    /// Replies wait; whether one is there.
    Closed { reply: bool },
}

impl Gate {
    /// Begins to hold replies back, until the value is dropped.
    pub(super) fn measure(&self) -> Measured<'_> {
        self.0.send_replace(State::Open);
        Measured(self)
    }

    /// The client has sent a request.
    pub(super) fn requested(&self) {
        self.0.send_if_modified(|state| {
            let closes = *state == State::Open;
            if closes {
                *state = State::Closed { reply: false };
            }
            closes
        });
    }

    /// The server has replied; waits until the client may see it.
    pub(super) async fn replied(&self) {
        self.0.send_if_modified(|state| {
            let first = *state == State::Closed { reply: false };
            if first {
                *state = State::Closed { reply: true };
            }
            first
        });
        let mut state = self.0.subscribe();
        // An error would mean that the sender is gone, which is borrowed here.
        let _ = state.wait_for(|state| matches!(state, State::Off | State::Open)).await;
    }
}

/// A measurement that is going on.
pub(super) struct Measured<'a>(&'a Gate);

impl Measured<'_> {
    /// Waits until a reply is there, and then for as long as the client might need to end without it.
    pub(super) async fn stuck(&self) {
        let mut state = self.0.0.subscribe();
        let _ = state.wait_for(|state| *state == State::Closed { reply: true }).await;
        tokio::time::sleep(PATIENCE).await;
    }

    pub(super) fn let_pass(&self) {
        self.0.0.send_replace(State::Open);
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.0.0.send_replace(State::Off);
    }
}
