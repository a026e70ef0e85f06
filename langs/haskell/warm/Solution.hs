module Solution (solution) where

import Control.Monad.State (evalState, gets, modify)
import Data.Bits (shiftL, xor, (.&.))
import Data.Char (isDigit, ord, toUpper)
import qualified Data.HashMap.Lazy as HashMap
import Data.IORef (modifyIORef, newIORef, readIORef)
import Data.List (foldl', intercalate, nub, sortBy, sortOn)
import qualified Data.Map.Strict as Map
import Data.Maybe (fromMaybe, mapMaybe)
import Data.Ord (comparing)
import qualified Data.Set as Set
import Text.Printf (printf)

data Shape = Circle Double | Square {side :: Double} deriving (Eq, Ord, Show)

area :: Shape -> Double
area (Circle radius) = pi * radius ^ (2 :: Int)
area shape
  | side shape > 0 = side shape * side shape
  | otherwise = 0

solution :: Int -> Double -> String -> Bool -> [String] -> [[Int]] -> IO (HashMap.HashMap String [String])
solution a f s b l n = do
  seen <- newIORef (0 :: Int)
  mapM_ (modifyIORef seen . (+)) (concat n)
  total <- readIORef seen
  let counts = foldl' (\m c -> Map.insertWith (+) c (1 :: Int) m) Map.empty (filter isDigit s)
      steps = evalState (modify (+ a) >> gets (`mod` 7)) 1
      pairs = [(x, y) | (x, y) <- zip l (tail l), x < y]
      shapes = sortOn area [Circle f, Square 2] ++ sortBy (comparing show) []
  printf "%d %.2f %s\n" total f (show shapes)
  putStrLn (intercalate ", " (nub (map fst pairs)) ++ map toUpper s)
  pure $
    HashMap.fromList
      [ (s, l),
        ("counts", map show (Map.toList counts)),
        ("rest", [show (fromMaybe 0 (lookup a [(1, steps)])), show b, show (Set.size (Set.fromList l))]),
        ("bits", [show ((a `shiftL` 1) `xor` 3 .&. ord 'x'), show (length (mapMaybe (`Map.lookup` counts) s))])
      ]
