;; What a JVM that is started ahead of its run compiles and runs: not for what it computes, but so
;; that the parts of Clojure which usual solutions need are loaded and compiled. It requires nothing
;; and starts no thread: the run would find that.
(def limit 100)

(defrecord Point [x y])

(defprotocol Shape
  (area [shape]))

(deftype Circle [radius]
  Shape
  (area [_] (* Math/PI radius radius)))

(defmulti described :kind)
(defmethod described :default [item] (str "some " (:kind item)))

(defmacro unless [test & body]
  `(when (not ~test) ~@body))

(defn- gcd [a b]
  (if (zero? b) a (recur b (rem a b))))

(def factorial
  (memoize (fn [n] (if (< n 2) 1N (* n (factorial (dec n)))))))

(defn words [^String text]
  (->> (clojure.string/split text #"[ ,]+")
       (map-indexed (fn [i word] (if (even? i) (clojure.string/upper-case word) (clojure.string/reverse word))))
       (clojure.string/join "-")))

(defn collections [numbers]
  (let [{evens true odds false} (group-by even? numbers)
        [head & tail] numbers
        counts (atom {})]
    (doseq [n numbers :when (> n 1)]
      (swap! counts update n (fnil inc 0)))
    {:evens (vec evens)
     :odds (into (sorted-set) odds)
     :head head
     :tail (reduce + 0 tail)
     :squares (for [x (range 5) y [1 2] :let [z (* x y)] :while (< z 9)] z)
     :loop (loop [i 0 all []] (if (< i 3) (recur (inc i) (conj all i)) all))
     :frequencies (frequencies "abca")
     :counts @counts
     :partitions (map vec (partition-all 2 numbers))
     :sorted (sort-by (comp - identity) numbers)
     :transduced (transduce (comp (map inc) (filter odd?) (distinct)) conj numbers)
     :best (apply max numbers)
     :zipped (zipmap [:a :b] (interleave numbers numbers))
     :nested (get-in (assoc-in {} [:a :b] 1) [:a :b])
     :union (clojure.set/union #{1} #{2})
     :lazy (take 3 (iterate #(* 2 %) 1))
     :some (some #{2 3} numbers)}))

(defn solution [a b & {:keys [scale] :or {scale 1}}]
  (println "adding" a (format "%.2f" 1.5))
  (let [failed (try
                 (when (> a limit) (throw (ex-info "large" {:a a})))
                 (Integer/parseInt "12x")
                 (catch NumberFormatException error (count (.getMessage error)))
                 (finally (unless (pos? a) (prn :none))))
        grid (vec (repeat 3 (vec (repeat 4 0))))
        array (int-array [3 1 2])]
    (java.util.Arrays/sort array)
    (letfn [(up [n] (if (pos? n) (down (dec n)) n))
            (down [n] (cond (zero? n) 0 :else (up (dec n))))]
      (merge (collections [a b 3 4])
             {:failed failed
              :grid (assoc-in grid [1 2] (case scale 1 :one 2 :two :many))
              :array (seq array)
              :point (:x (->Point a b))
              :area (area (->Circle 1.5))
              :described (described {:kind "thing"})
              :words (words "some words, in a row")
              :big (factorial 25)
              :ratio (double (/ 1 3))
              :gcd (gcd a b)
              :up (up 4)
              :when (if-let [found (first (filterv neg? [a b]))] found (when-not (nil? a) -1))
              :bits (bit-xor (bit-shift-left a 40) 1)}))))
