//! Of the crate of this name, what the platform's checkers use of it: a duration
//! written as a text of seconds. The crate itself is not to be had without some
//! hundred packages that nothing here would use.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serializer;
pub use serde_with_macros::serde_as;

pub struct DurationSecondsWithFrac<Format = f64>(PhantomData<Format>);

pub trait SerializeAs<T> {
    fn serialize_as<S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error>;
}

impl SerializeAs<Duration> for DurationSecondsWithFrac<String> {
    fn serialize_as<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&value.as_secs_f64())
    }
}

impl SerializeAs<Duration> for DurationSecondsWithFrac<f64> {
    fn serialize_as<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(value.as_secs_f64())
    }
}

pub struct As<Kind>(PhantomData<Kind>);

impl<Kind> As<Kind> {
    pub fn serialize<T, S>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
    where
        Kind: SerializeAs<T>,
        S: Serializer,
    {
        Kind::serialize_as(value, serializer)
    }
}
