{-# LANGUAGE OverloadedStrings #-}

import Control.Exception (SomeException, displayException, evaluate, fromException, throwIO, try)
import Control.Monad (unless)
import Data.Aeson (ToJSON, Value (String), encode, object, toJSON, (.=))
import qualified Data.ByteString as Bytes
import qualified Data.ByteString.Lazy.Char8 as Lazy
import qualified Data.Text as Text
import Data.Text.Encoding (decodeUtf8With)
import Data.Text.Encoding.Error (lenientDecode)
import GHC.Clock (getMonotonicTime)
import GHC.IO.Handle (hDuplicate, hDuplicateTo)
import System.Exit (ExitCode)
import System.IO (IOMode (WriteMode), hClose, hFlush, stdout, withFile)

import Solution (solution)

printed :: FilePath
printed = "/tmp/printed"

-- What the action prints goes to a file, and is an item of its own.
check :: ToJSON value => value -> IO ()
check call = do
  start <- getMonotonicTime
  saved <- hDuplicate stdout
  withFile printed WriteMode (`hDuplicateTo` stdout)
  outcome <- try (evaluate (Lazy.length (encode call)))
  hFlush stdout
  hDuplicateTo saved stdout
  hClose saved
  end <- getMonotonicTime
  text <- decodeUtf8With lenientDecode <$> Bytes.readFile printed
  unless (Text.null text) $ item "output" (String text) 0
  case outcome of
    Right _ -> item "result" (toJSON call) (end - start)
    Left problem -> case fromException problem of
      Just code -> throwIO (code :: ExitCode)
      Nothing -> item "error" (toJSON (displayException (problem :: SomeException))) (end - start)

item :: String -> Value -> Double -> IO ()
item kind value time = do
  Lazy.putStrLn (encode (object ["type" .= kind, "value" .= value, "time" .= time]))
  hFlush stdout

main :: IO ()
main = do
  check (solution 1 2)
  check (solution 40 2)
