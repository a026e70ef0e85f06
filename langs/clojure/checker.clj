(ns checker
  "Calls the posted `solution` once per entry of check/asserts.json; reports one
  JSON array.

  Descriptor 0 is the run's stdout: of the descriptors that a JVM names, the one
  that a solution does not write to. Descriptor 1 is the file named by the first
  argument, so nothing the solution prints, not even a child process of it, can
  come between the items."
  ;; Solutions written for babashka name these two without a require.
  (:require clojure.set clojure.string)
  (:import (com.google.gson.stream JsonReader JsonToken JsonWriter)
           (java.io FileDescriptor FileInputStream FileOutputStream FileReader InputStream StringWriter)
           (java.nio.charset StandardCharsets)
           (java.util Arrays Collection Map))
  (:gen-class))

(set! *warn-on-reflection* true)

(def asserts-path "check/asserts.json")
(def solution-path "check/solution.clj")

;; JSON to Clojure and back

(defn- integer-of [^String digits]
  (let [exact (BigInteger. digits)]
    (if (< (.bitLength exact) 64) (.longValue exact) (bigint exact))))

(defn- number-of [^String literal]
  (if (re-find #"[.eE]" literal) (Double/parseDouble literal) (integer-of literal)))

(defn- read-value
  "Keys of objects stay texts, as the platform's checker leaves them."
  [^JsonReader in]
  (condp = (.peek in)
    JsonToken/BEGIN_ARRAY (do (.beginArray in)
                              (loop [items (transient [])]
                                (if (.hasNext in)
                                  (recur (conj! items (read-value in)))
                                  (do (.endArray in) (persistent! items)))))
    JsonToken/BEGIN_OBJECT (do (.beginObject in)
                               (loop [entries {}]
                                 (if (.hasNext in)
                                   (let [k (.nextName in)]
                                     (recur (assoc entries k (read-value in))))
                                   (do (.endObject in) entries))))
    JsonToken/STRING (.nextString in)
    JsonToken/NUMBER (number-of (.nextString in))
    JsonToken/BOOLEAN (.nextBoolean in)
    JsonToken/NULL (.nextNull in)))

(defn- text-of
  "A keyword or symbol with its namespace, anything else as `str` has it."
  [value]
  (if (keyword? value) (subs (str value) 1) (str value)))

(defn- write-value [^JsonWriter out value]
  (cond
    (nil? value) (.nullValue out)
    (boolean? value) (.value out (boolean value))
    ;; Refuses what has no JSON form: ratios, NaN, the infinities.
    (number? value) (.value out ^Number value)
    (or (string? value) (char? value) (keyword? value) (symbol? value)) (.value out ^String (text-of value))
    (instance? Map value) (do (.beginObject out)
                              (doseq [[k v] value]
                                (.name out (text-of k))
                                (write-value out v))
                              (.endObject out))
    (or (seqable? value) (instance? Collection value)) (do (.beginArray out)
                                                           (run! #(write-value out %) value)
                                                           (.endArray out))
    :else (throw (IllegalArgumentException. (str "not a JSON value: " (pr-str value))))))

(defn- encode [value]
  (let [text (StringWriter.)]
    (write-value (doto (JsonWriter. text) (.setSerializeNulls true)) value)
    (str text)))

;; The report: the items so far, each encoded as it came, so that a later one
;; cannot spoil it

(def ^:private report
  "`:answers` counts the items that stand for a call, all but what was printed; `:lone-error` is
  the only answer so far, if that is an error, and what was printed before it."
  (atom {:items [] :answers 0 :lone-error nil :failures 0}))

(def ^:private repeated-max "Characters of printed text that are repeated on stderr." 4096)

(defn- take-printed! [^InputStream printed]
  ;; The solution may have closed it; what reached the file counts.
  (try (flush) (catch java.io.IOException _))
  (.flush System/out)
  (let [text (String. (.readAllBytes printed) StandardCharsets/UTF_8)]
    (when (seq text)
      (swap! report update :items conj (encode {:type "output" :value text})))
    text))

(defn- add! [printed item]
  ;; Encoded before what was printed is taken: a value JSON cannot hold, or a lazy
  ;; one that prints, leaves the order output, result or error.
  (let [encoded ^String (encode item)
        output (take-printed! printed)
        ;; The platform shows what a call printed from the call's own item.
        answer (if (seq output)
                 (str (subs encoded 0 (dec (count encoded))) ",\"output\":" (encode output) "}")
                 encoded)]
    (swap! report (fn [{:keys [answers] :as so-far}]
                    (-> so-far
                        (update :items conj answer)
                        (assoc :answers (inc answers)
                               :lone-error (when (and (zero? answers) (= "error" (:type item)))
                                             {:answer answer :output output})))))))

(defn- described [^Throwable error]
  (let [cause (.getCause error)]
    (cond-> (str error)
      ;; The compiler's own exception says where, its cause says what.
      (and cause (instance? clojure.lang.Compiler$CompilerException error)) (str " " cause))))

(defn- print-trace [^Throwable error]
  (let [ours? (fn [^StackTraceElement frame] (.startsWith (.getClassName frame) "checker"))
        theirs (take-while (complement ours?) (.getStackTrace error))]
    (.setStackTrace error (into-array StackTraceElement theirs))
    (.printStackTrace error)))

(defn- add-failure! [printed error]
  ;; An ex-info prints its data, and that may be without end.
  (binding [*print-length* 100]
    (when (zero? (:failures @report)) (print-trace error))
    (swap! report update :failures inc)
    (add! printed {:type "error" :value (described error)})))

(defn- shown-items
  "The platform shows an error that is the only item, and stderr with it, as the error of the
  whole check. Beside any other item it is the row of the first call."
  [{:keys [items lone-error]}]
  (if-let [{:keys [answer ^String output]} lone-error]
    (do (when (seq output)
          (.println System/err (str "printed before the error:\n"
                                    (subs output 0 (min repeated-max (count output))))))
        [answer])
    items))

(defn- send! [printed]
  (take-printed! printed)
  ;; Only once: the shutdown hook comes here too.
  (when-let [items (shown-items (first (swap-vals! report dissoc :items :lone-error)))]
    (with-open [results (FileOutputStream. FileDescriptor/in)]
      ;; A lone surrogate has no UTF-8 form; it becomes a question mark.
      (.write results (.getBytes (str "[" (clojure.string/join "," items) "]\n") StandardCharsets/UTF_8)))))

(defn- send-at-exit! [printed]
  (when (:items @report)
    ;; Without it, the calls that never came would look like none were asked.
    (add! printed {:type "error" :value "the solution ended the program: System/exit"})
    (send! printed)))

;; The run

(defn- read-calls
  "The argument lists, or an exception that says what is wrong with the file."
  []
  (let [asserts (try
                  (with-open [in (JsonReader. (FileReader. ^String asserts-path StandardCharsets/UTF_8))]
                    (let [value (read-value in)]
                      (when-not (= JsonToken/END_DOCUMENT (.peek in))
                        (throw (IllegalArgumentException. "more than one JSON value")))
                      value))
                  (catch Throwable error
                    (throw (ex-info (str asserts-path ": " error) {}))))
        calls (when (map? asserts) (get asserts "arguments"))]
    (when-not (and (vector? calls) (every? vector? calls))
      (throw (ex-info (str asserts-path ": want {\"arguments\": [[...], ...]}") {})))
    calls))

(defn- solution-var
  "In `user`, or in the namespace that the solution made for itself."
  []
  (some #(get (ns-interns %) 'solution) (cons (the-ns 'user) (all-ns))))

(defn- load-solution []
  (binding [*ns* (create-ns 'user)]
    (refer-clojure)
    (load-file solution-path))
  (let [found (solution-var)]
    (when-not (and found (bound? found) (ifn? @found))
      (throw (ex-info (str solution-path " defines no function `solution`") {})))
    @found))

(defn- call! [printed solution arguments]
  (try
    (let [start (System/nanoTime)
          value (apply solution arguments)
          seconds (/ (- (System/nanoTime) start) 1e9)]
      (add! printed {:type "result" :value value :time seconds}))
    (catch Throwable error
      (add-failure! printed error))))

(defn- run-calls! [printed]
  (when-let [calls (try (read-calls)
                        (catch Exception error
                          (add! printed {:type "error" :value (ex-message error)})
                          nil))]
    (when-let [solution (try (load-solution)
                             (catch Throwable error (add-failure! printed error) nil))]
      (binding [*ns* (the-ns 'user)]
        (run! #(call! printed solution %) calls)))))

;; Ahead of a run

(def ^:private rounds
  "How often a source of the workspace is loaded ahead: each time more of Clojure is compiled."
  20)

(defn- ^java.util.concurrent.atomic.AtomicInteger ids
  "Has the number in the next name that Clojure makes up."
  []
  (.get (doto (.getDeclaredField clojure.lang.RT "id") (.setAccessible true)) nil))

(defn- bring-up! []
  (let [next-id (.get (ids))]
    (dotimes [_ rounds]
      (binding [*ns* (create-ns 'ahead)
                *out* (StringWriter.)]
        (refer-clojure)
        (load-file "warm/solution.clj")
        (encode {:type "result" :value (@(ns-resolve *ns* 'solution) 6 4) :time 1e-9}))
      (remove-ns 'ahead))
    ;; The run finds the names that it would have found.
    (.set (ids) next-id)))

(defn- await-run!
  "Descriptor 4 ends when the run begins."
  []
  (bring-up!)
  ;; The run begins with an empty young generation.
  (System/gc)
  (.write (FileOutputStream. FileDescriptor/in) (.getBytes "ready\n"))
  (with-open [begin (FileInputStream. "/proc/self/fd/4")]
    (while (<= 0 (.read begin)))))

(defn -main [printed-path]
  ;; A property, not an argument: the trace of an exception shows how many there are.
  (when (System/clearProperty "prestart") (await-run!))
  (System/setIn (InputStream/nullInputStream))
  (let [printed (FileInputStream. ^String printed-path)]
    (.addShutdownHook (Runtime/getRuntime) (Thread. ^Runnable #(send-at-exit! printed)))
    (binding [*in* (clojure.lang.LineNumberingPushbackReader. (java.io.StringReader. ""))]
      (run-calls! printed))
    (send! printed)
    ;; Threads that the solution left behind, futures among them, are not waited for.
    (System/exit 0)))
