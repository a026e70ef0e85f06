{-# LANGUAGE OverloadedStrings #-}
{-# LANGUAGE ScopedTypeVariables #-}

-- What is compiled ahead of a run, and never executed: what checkers and solutions use most.
module Main (main) where

import Control.Exception
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

check :: ToJSON value => value -> IO ()
check call = do
  start <- getMonotonicTime
  saved <- hDuplicate stdout
  withFile "" WriteMode (`hDuplicateTo` stdout)
  outcome <- try (evaluate (Lazy.length (encode call)))
  hFlush stdout
  hDuplicateTo saved stdout
  hClose saved
  end <- getMonotonicTime
  text <- decodeUtf8With lenientDecode <$> Bytes.readFile ""
  unless (Text.null text) $ item "output" (String text) 0
  case outcome of
    Right _ -> item "result" (toJSON call) (end - start)
    Left problem -> case fromException problem of
      Just code -> throwIO (code :: ExitCode)
      Nothing -> item "error" (toJSON (displayException (problem :: SomeException))) 0

item :: String -> Value -> Double -> IO ()
item kind value time = Lazy.putStrLn (encode (object ["type" .= kind, "value" .= value, "time" .= time]))

main :: IO ()
main = (solution 1 0.5 "" True ["a"] [[1, -2], []] >>= check) `catch` \(problem :: ErrorCall) -> print problem
