{-# LANGUAGE CPP #-}

-- The compiler, started ahead of the run. It compiles the workspace's own modules, by which it has read what most
-- checks import. Then it waits until standard input ends, and does what `ghc` does with the same arguments.
module Main (main) where

import Control.Monad (unless, void, when)
import Control.Monad.IO.Class (liftIO)
import Foreign.C.Types (CInt (..), CSize (..))
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Ptr (Ptr)
import GHC
import GHC.Driver.Config.Diagnostic (initDiagOpts, initPrintConfig)
import GHC.Driver.Errors (handleFlagWarnings)
import GHC.Driver.Session (DynFlags (..), defaultFatalMessager, defaultFlushOut, initialUnique, uniqueIncrement)
import GHC.HandleEncoding (configureHandleEncoding)
import GHC.ResponseFile (getArgsWithResponseFiles)
import GHC.Types.SourceError (handleSourceError)
import GHC.Types.SrcLoc (mkGeneralLocated, unLoc)
import GHC.Types.Unique.Supply (initUniqSupply)
import System.Directory (removeDirectoryRecursive)
import System.Exit (ExitCode (..), exitWith)
import System.IO
import System.Mem (performMajorGC)
import System.Posix.Types (CSsize (..))

foreign import ccall unsafe "read" readBytes :: CInt -> Ptr () -> CSize -> IO CSsize

main :: IO ()
main = do
  hSetBuffering stdout LineBuffering
  hSetBuffering stderr LineBuffering
  configureHandleEncoding
  arguments <- getArgsWithResponseFiles
  defaultErrorHandler defaultFatalMessager defaultFlushOut $ runGhc (Just LIBDIR) $ do
    targets <- setFlags arguments
    run <- getSession
    flags <- getSessionDynFlags
    void (setSessionDynFlags (elsewhere flags))
    compile ["warm/Checker.hs"]
    liftIO (removeDirectoryRecursive scratch)
    -- What the session knows of packages is shared by its copies, and nothing else.
    setSession run
    liftIO $ do
      performMajorGC
      putStrLn "ready"
      awaitRun
    compile targets

scratch :: FilePath
scratch = "/tmp/ahead"

elsewhere :: DynFlags -> DynFlags
elsewhere flags =
  flags {importPaths = ["warm"], objectDir = Just scratch, hiDir = Just scratch, stubDir = Just scratch, dumpDir = Just scratch}

-- The next three are those of `ghc --make`.
setFlags :: [String] -> Ghc [String]
setFlags arguments = do
  flags <- getSessionDynFlags
  logger <- getLogger
  let located = map (mkGeneralLocated "on the commandline") arguments
  (parsed, targets, warnings) <- parseDynamicFlags logger flags {ghcMode = CompManager, ghcLink = LinkBinary, verbosity = 1} located
  void (setSessionDynFlags parsed)
  new <- getSessionDynFlags
  liftIO (initUniqSupply (initialUnique new) (uniqueIncrement new))
  liftIO (handleFlagWarnings logger (initPrintConfig new) (initDiagOpts new) warnings)
  pure (map unLoc targets)

compile :: [String] -> Ghc ()
compile names = failing $ do
  targets <- mapM (\name -> guessTarget name Nothing Nothing) names
  setTargets targets
  loaded <- load LoadAllTargets
  when (failed loaded) $ liftIO (exitWith (ExitFailure 1))

failing :: Ghc () -> Ghc ()
failing = handleSourceError $ \errors -> do
  printException errors
  liftIO (exitWith (ExitFailure 1))

-- In a read, which is how the service sees that this program waits.
awaitRun :: IO ()
awaitRun = do
  count <- allocaBytes 64 $ \bytes -> readBytes 0 bytes 64
  unless (count <= 0) awaitRun
