//! Whether a Cell is not started, started or stopped.

use std::sync::{PoisonError, RwLock};

use super::error::{ExecCode, ExecError};

/// The files of a Cell, while it has them.
#[derive(Debug)]
pub(super) struct CellStage<F>(RwLock<Stage<F>>);

#[derive(Debug)]
enum Stage<F> {
    New,
    Started(F),
    Stopped,
}

impl<F> Default for CellStage<F> {
    fn default() -> Self {
        Self(RwLock::new(Stage::New))
    }
}

impl<F> CellStage<F> {
    /// Keeps what `make` makes, once.
    pub(super) fn start(
        &self,
        make: impl FnOnce() -> Result<F, ExecError>,
    ) -> Result<(), ExecError> {
        let mut stage = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match &*stage {
            Stage::New => *stage = Stage::Started(make()?),
            Stage::Started(_) => return Err(ExecError::failed("start", "the Cell is started")),
            Stage::Stopped => return Err(stopped()),
        }
        Ok(())
    }

    /// Passes the files to `act`. Several calls may do so at the same time.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&F) -> Result<T, ExecError>,
    ) -> Result<T, ExecError> {
        match &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            Stage::New => Err(not_started()),
            Stage::Started(files) => act(files),
            Stage::Stopped => Err(stopped()),
        }
    }

    /// Puts what `change` makes of the files in their place, once the other calls have returned. If it fails, the Cell
    /// is stopped.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(F) -> Result<(F, T), ExecError>,
    ) -> Result<T, ExecError> {
        let mut stage = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *stage, Stage::Stopped) {
            Stage::New => {
                *stage = Stage::New;
                Err(not_started())
            }
            Stage::Started(files) => {
                let (files, value) = change(files)?;
                *stage = Stage::Started(files);
                Ok(value)
            }
            Stage::Stopped => Err(stopped()),
        }
    }

    /// Drops the files, once the other calls have returned.
    pub(super) fn stop(&self) {
        let mut stage = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *stage = Stage::Stopped;
    }
}

fn not_started() -> ExecError {
    ExecError::new(ExecCode::NotStarted, "the Cell is not started")
}

fn stopped() -> ExecError {
    ExecError::new(ExecCode::Stopped, "the Cell is stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_there_from_a_start_to_the_first_stop() {
        let stage = CellStage::default();
        let code = |stage: &CellStage<u8>| stage.with(|file| Ok(*file)).map_err(|error| error.code);
        assert_eq!(code(&stage), Err(ExecCode::NotStarted));
        let failed = || Err(ExecError::failed("copy", "no"));
        assert_eq!(stage.start(failed).unwrap_err().code, ExecCode::BackendFailed);
        assert_eq!(code(&stage), Err(ExecCode::NotStarted));
        stage.start(|| Ok(7)).unwrap();
        assert_eq!(stage.start(|| Ok(8)).unwrap_err().code, ExecCode::BackendFailed);
        assert_eq!(code(&stage), Ok(7));
        assert_eq!(stage.change(|file| Ok((file + 1, file))), Ok(7));
        assert_eq!(code(&stage), Ok(8));
        for _ in 0..2 {
            stage.stop();
            assert_eq!(code(&stage), Err(ExecCode::Stopped));
        }
        assert_eq!(stage.start(|| Ok(9)).unwrap_err().code, ExecCode::Stopped);
        let stage = CellStage::default();
        assert_eq!(stage.change(|file: u8| Ok((file, ()))).unwrap_err().code, ExecCode::NotStarted);
        stage.start(|| Ok(7)).unwrap();
        assert!(stage.change(|_| Err::<(u8, ()), _>(ExecError::failed("freeze", "no"))).is_err());
        assert_eq!(code(&stage), Err(ExecCode::Stopped));
    }
}
