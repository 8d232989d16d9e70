//! A client that pays over HTTP, gives up waiting, and sends the same request again until it has an answer.

use std::time::Duration;

use anyhow::{Result, bail};

/// How long it waits before it sends a request again.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it sends a request before it gives up.
const ATTEMPTS: usize = 200;

/// Pays from one account.
#[derive(Clone, Debug)]
pub struct Payer {
    http: reqwest::Client,
    url: String,
    token: String,
    patience: Duration,
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It was not answered in time, or the connection broke: nobody knows whether the payment was made.
    Unanswered,
    /// It was answered.
    Answered(Answer),
}

/// The parts of an answer that the protocol is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The header `Idempotent-Replayed`.
    pub replayed: Option<String>,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The body.
    pub body: String,
}

impl Payer {
    /// Pays at the server at `base`, such as `http://127.0.0.1:3000`, with an account's token, and waits so long for an
    /// answer.
    ///
    /// # Errors
    ///
    /// Of the HTTP client.
    pub fn new(base: &str, token: &str, patience: Duration) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { http, url: format!("{base}/payments"), token: token.to_owned(), patience })
    }

    /// Sends one request. Each header that is given in `keys` is an `Idempotency-Key`.
    pub async fn send(&self, keys: &[&str], payment: &str) -> Attempt {
        let mut request = self.http.post(&self.url).bearer_auth(&self.token).timeout(self.patience);
        for key in keys {
            request = request.header("idempotency-key", *key);
        }
        match self.answer(request.body(payment.to_owned())).await {
            Ok(answer) => Attempt::Answered(answer),
            Err(_) => Attempt::Unanswered,
        }
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
        let response = request.send().await?;
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (replayed, content_type) = (header("idempotent-replayed"), header("content-type").unwrap_or_default());
        Ok(Answer { status, replayed, content_type, body: response.text().await? })
    }

    /// Sends one payment until it is answered with anything but "later" (409 and 503), and tells every attempt.
    ///
    /// # Errors
    ///
    /// If there is no answer in the end.
    pub async fn pay(&self, key: &str, payment: &str) -> Result<(Vec<Attempt>, Answer)> {
        let mut attempts = Vec::new();
        loop {
            let attempt = self.send(&[key], payment).await;
            attempts.push(attempt.clone());
            match attempt {
                Attempt::Answered(answer) if !matches!(answer.status, 409 | 503) => return Ok((attempts, answer)),
                later if attempts.len() == ATTEMPTS => bail!("no answer after {ATTEMPTS} attempts, at last {later:?}"),
                _ => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
