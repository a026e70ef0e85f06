// A Swift program without its own code: that comes as a file. What is imported
// here is loaded before it, so that it names no library itself.
import Distributed
import Foundation
import RegexBuilder
import Synchronization

typealias Main = @convention(c) (Int32, UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Int32

// Seldom used and slow to load: only where a symbol would be missing.
let rare = ["FoundationNetworking", "FoundationXML", "swiftObservation", "swift_Differentiation"]
let path = CommandLine.arguments.dropFirst().first ?? ""

func load() -> UnsafeMutableRawPointer? { dlopen(path, RTLD_NOW | RTLD_GLOBAL) }
func load(after libraries: [String]) -> UnsafeMutableRawPointer? {
    for name in libraries { _ = dlopen("lib\(name).so", RTLD_LAZY | RTLD_GLOBAL) }
    return load()
}

// Ahead of a run that file is made by a child; in a run of its own there is none.
var status: Int32 = 0
if waitpid(-1, &status, 0) > 0, status != 0 {
    let signal = status & 0x7f
    exit(signal != 0 ? 128 + signal : status >> 8)
}

guard let program = load() ?? load(after: rare), let symbol = dlsym(program, "main") else {
    fputs("checker.swift: \(String(cString: dlerror()))\n", stderr)
    exit(1)
}
exit(unsafeBitCast(symbol, to: Main.self)(1, CommandLine.unsafeArgv))
