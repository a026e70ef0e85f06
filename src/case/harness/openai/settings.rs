//! What a harness of kind `openai` is made of.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::key::ModelKey;
use crate::case::file::HarnessKind;
use crate::case::harness::denials::entry_of;
use crate::case::harness::end::{AgentTokens, HarnessError};
use crate::case::harness::network::{HarnessTerms, SECRET_DENIED};
use crate::egress::hosts::literal::AskedHost;
use crate::evaluation::web_url::WebUrl;

/// Where the endpoint is, if neither the Case nor a variable says so.
const BASE_URL_DEFAULT: &str = "https://api.openai.com/v1";
const BASE_URL_VARIABLE: &str = "OPENAI_BASE_URL";
const KEY_VARIABLE: &str = "OPENAI_API_KEY";
const ENDPOINT: &str = "/chat/completions";
/// The tokens that a price is for.
const PRICED_TOKENS: f64 = 1e6;

/// What a harness of kind `openai` is made of.
#[derive(Debug, Clone)]
pub struct OpenaiSettings {
    /// Where requests go.
    pub url: WebUrl,
    /// The key, if any.
    pub key: Option<ModelKey>,
    /// The most requests that the model answers.
    pub turns_max: u32,
    /// The temperature, if any.
    pub temperature: Option<f64>,
    /// What tokens cost.
    pub prices: ModelPrices,
    /// Variables of the tools' programs.
    pub env: BTreeMap<String, String>,
    /// Whose requests they are, and where they may go.
    pub terms: HarnessTerms,
}

/// What a million tokens cost, dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelPrices {
    /// Read.
    pub read_usd: f64,
    /// Written.
    pub written_usd: f64,
}

impl OpenaiSettings {
    /// Reads a harness of this kind. `variables` has the values of those that it may name.
    ///
    /// # Errors
    /// The URL is none, or there is no such key.
    pub fn read(
        kind: &HarnessKind,
        env: BTreeMap<String, String>,
        terms: &HarnessTerms,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, HarnessError> {
        let HarnessKind::Openai {
            base_url,
            api_key_env,
            secret,
            max_turns,
            temperature,
            price_in,
            price_out,
        } = kind
        else {
            return Err(HarnessError::failed("the harness is not of kind 'openai'"));
        };
        let given = base_url.clone().or_else(|| variables(BASE_URL_VARIABLE));
        let base =
            given.filter(|url| !url.is_empty()).unwrap_or_else(|| BASE_URL_DEFAULT.to_owned());
        let url = endpoint(&base)
            .map_err(|reason| HarnessError::failed(format!("base_url: {reason}")))?;
        let key = match (secret, api_key_env) {
            (Some(name), _) => Some(key_of_service(name, &url, terms)?),
            (None, name) => key_of_variable(name.as_deref(), terms.trusts_case, variables)?,
        };
        Ok(Self {
            url,
            key,
            turns_max: u32::try_from(*max_turns).unwrap_or(1),
            temperature: *temperature,
            prices: ModelPrices { read_usd: *price_in, written_usd: *price_out },
            env,
            terms: terms.clone(),
        })
    }

    /// The host and port of the endpoint, as an entry of a list of hosts.
    pub(super) fn entry(&self) -> String {
        entry_of(&self.url)
    }
}

impl ModelPrices {
    /// What `tokens` cost; `None` if there is no price.
    pub(super) fn cost_usd(self, tokens: AgentTokens) -> Option<f64> {
        let amount = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let cost = amount(tokens.read) * self.read_usd + amount(tokens.written) * self.written_usd;
        (self.read_usd > 0.0 || self.written_usd > 0.0).then_some(cost / PRICED_TOKENS)
    }
}

fn endpoint(base: &str) -> Result<WebUrl, &'static str> {
    if base.contains('?') {
        return Err("the URL may not have a query");
    }
    WebUrl::parse(&format!("{}{ENDPOINT}", base.trim_end_matches('/')))
}

fn key(text: Zeroizing<String>) -> Result<ModelKey, HarnessError> {
    ModelKey::new(text).map_err(HarnessError::failed)
}

/// The key in the variable `name`, or in the usual one of a caller whose own the Case is. Endpoints of one's own often
/// need none.
fn key_of_variable(
    name: Option<&str>,
    trusts_case: bool,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<ModelKey>, HarnessError> {
    let given = match name {
        Some(name) => {
            let missing = || HarnessError::failed(format!("the variable {name} is not set"));
            Some(variables(name).ok_or_else(missing)?)
        }
        None if trusts_case => variables(KEY_VARIABLE).filter(|text| !text.is_empty()),
        None => None,
    };
    given.map(|text| key(Zeroizing::new(text))).transpose()
}

/// The secret of the service with that name, if it is for the run's token and for the host of `url`.
fn key_of_service(
    name: &str,
    url: &WebUrl,
    terms: &HarnessTerms,
) -> Result<ModelKey, HarnessError> {
    let denied =
        |words: &str| HarnessError::failed(format!("{SECRET_DENIED}: the secret '{name}' {words}"));
    let secrets = terms.egress.service.secrets();
    let (value, hosts) =
        secrets.find(name, &terms.token).ok_or_else(|| denied("is not available"))?;
    let is_for_host =
        AskedHost::parse(url.host()).is_some_and(|host| hosts.allows(&host, url.port()));
    match is_for_host {
        true => key(Zeroizing::new(value.expose().to_owned())),
        false => Err(denied("is not for the host of 'base_url'")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::egress::AllowList;
    use crate::egress::secret::ServiceSecret;
    use cofferdam_core::SecretValue;

    fn kind(
        base_url: Option<&str>,
        api_key_env: Option<&str>,
        secret: Option<&str>,
    ) -> HarnessKind {
        HarnessKind::Openai {
            base_url: base_url.map(str::to_owned),
            api_key_env: api_key_env.map(str::to_owned),
            secret: secret.map(str::to_owned),
            max_turns: 50,
            temperature: None,
            price_in: 0.0,
            price_out: 0.0,
        }
    }

    fn read(kind: &HarnessKind, terms: &HarnessTerms) -> Result<OpenaiSettings, String> {
        let variables = |name: &str| {
            let value = match name {
                "OPENAI_BASE_URL" => "http://of.variable/v1",
                "OPENAI_API_KEY" => "key-of-openai",
                "MINE" => "key-of-mine",
                _ => return None,
            };
            Some(value.to_owned())
        };
        OpenaiSettings::read(kind, BTreeMap::new(), terms, &variables)
            .map_err(|error| error.message)
    }

    #[test]
    fn the_endpoint_lies_below_the_base_url() {
        let trusted = HarnessTerms { trusts_case: true, ..HarnessTerms::default() };
        for (base, wanted) in [
            (Some("http://a.example/v1"), Some("http://a.example/v1/chat/completions")),
            (Some("http://a.example/v1//"), Some("http://a.example/v1/chat/completions")),
            (Some("https://a.example"), Some("https://a.example/chat/completions")),
            (None, Some("http://of.variable/v1/chat/completions")),
            (Some("http://user:password@a.example"), None),
            (Some("http://a.example/?key=1"), None),
            (Some("file:///etc"), None),
        ] {
            let found = read(&kind(base, None, None), &trusted);
            let found = found.as_ref().map(|settings| settings.url.as_str()).ok();
            assert_eq!(found, wanted, "{base:?}");
        }
    }

    #[test]
    fn a_key_is_a_variable_of_the_caller_or_a_secret_for_the_host() {
        let trusted = HarnessTerms { trusts_case: true, ..HarnessTerms::default() };
        let secret = ServiceSecret {
            value: Arc::new(SecretValue::new("key-of-service".to_owned()).unwrap()),
            hosts: AllowList::parse(&["a.example".to_owned()]).unwrap(),
            tokens: None,
        };
        let posted = HarnessTerms::default();
        posted.egress.service.secrets().replace([("k".to_owned(), secret)].into());
        let (here, there) = (Some("https://a.example/v1"), Some("https://b.example/v1"));
        for (kind, terms, wanted) in [
            (kind(here, None, None), &trusted, Ok(Some("key-of-openai"))),
            (kind(here, Some("MINE"), None), &trusted, Ok(Some("key-of-mine"))),
            (kind(here, Some("OTHER"), None), &trusted, Err("the variable OTHER is not set")),
            (kind(here, None, None), &posted, Ok(None)),
            (kind(here, None, Some("k")), &posted, Ok(Some("key-of-service"))),
            (
                kind(there, None, Some("k")),
                &posted,
                Err("policy.secret_denied: the secret 'k' is not for the host of 'base_url'"),
            ),
            (
                kind(here, None, Some("l")),
                &posted,
                Err("policy.secret_denied: the secret 'l' is not available"),
            ),
        ] {
            let found = read(&kind, terms);
            let found = found.map(|settings| settings.key.map(|key| key.header().to_string()));
            let wanted = wanted.map(|key| key.map(|key| format!("Bearer {key}")));
            assert_eq!(found, wanted.map_err(str::to_owned), "{kind:?}");
        }
    }

    #[test]
    fn prices_are_for_a_million_tokens() {
        let tokens = AgentTokens { read: 2_000_000, written: 500_000 };
        for (read_usd, written_usd, wanted) in
            [(0.0, 0.0, None), (1.5, 0.0, Some(3.0)), (1.5, 8.0, Some(7.0))]
        {
            let prices = ModelPrices { read_usd, written_usd };
            assert_eq!(prices.cost_usd(tokens), wanted);
        }
    }
}
