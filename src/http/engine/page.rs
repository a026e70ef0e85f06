//! Pages of lists.

use super::query::QueryParams;
use crate::workspace::EngineError;

/// The default number of entries per page.
const LIMIT: usize = 100;
/// The maximum number of entries per page.
const LIMIT_MAX: usize = 1000;

/// Which page of a list is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageQuery {
    /// How many entries at most.
    pub limit: usize,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

impl PageQuery {
    /// The page that `limit` and `cursor` ask for.
    ///
    /// # Errors
    /// The first of them that is wrong.
    pub fn of(params: &QueryParams) -> Result<Self, EngineError> {
        let limit = params.get("limit").map(|text| limit(text).ok_or("limit")).transpose();
        let limit = limit.map_err(|key| {
            EngineError::invalid(key, format!("want a whole number from 1 to {LIMIT_MAX}"))
        })?;
        let cursor = params.get("cursor").map(str::to_owned);
        Ok(Self { limit: limit.unwrap_or(LIMIT), cursor })
    }

    /// The cursor as a number, which all cursors of a list over memory are.
    ///
    /// # Errors
    /// The cursor is not one of ours.
    pub fn number(&self) -> Result<Option<u64>, EngineError> {
        let parse = |text: &String| {
            let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok());
            number.flatten().ok_or_else(|| EngineError::invalid("cursor", "want a next_cursor"))
        };
        self.cursor.as_ref().map(parse).transpose()
    }
}

fn limit(text: &str) -> Option<usize> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = is_number.then(|| text.parse().ok())??;
    (1..=LIMIT_MAX).contains(&limit).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str) -> Result<PageQuery, EngineError> {
        let uri = format!("/x?{query}").parse().unwrap();
        PageQuery::of(&QueryParams::parse(&uri, &["limit", "cursor"])?)
    }

    #[test]
    fn a_page_has_1_to_1000_entries_and_begins_at_a_cursor() {
        let first = PageQuery { limit: 100, cursor: None };
        assert_eq!(page(""), Ok(first.clone()));
        assert_eq!(first.number(), Ok(None));
        let next = page("limit=1000&cursor=17").unwrap();
        assert_eq!((next.limit, next.number()), (1000, Ok(Some(17))));
        for query in ["limit=0", "limit=1001", "limit=", "limit=+1", "limit=99999999999999999999"] {
            assert_eq!(page(query).unwrap_err().details["path"], "limit", "{query}");
        }
        for query in ["cursor=", "cursor=x", "cursor=-1", "cursor=99999999999999999999"] {
            let error = page(query).unwrap().number().unwrap_err();
            assert_eq!(error.details["path"], "cursor", "{query}");
        }
    }
}
