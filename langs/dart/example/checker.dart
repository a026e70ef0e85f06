import 'dart:async';
import 'dart:convert';

import 'package:check/solution.dart';

// The root zone's print writes at once, so nothing is lost when a solution exits.
void item(String type, Object? value, [num time = 0]) {
  Zone.root.print(jsonEncode({'type': type, 'value': value, 'time': time}));
}

// What the call prints is an item of its own.
void check(int Function() call) {
  final printed = StringBuffer();
  final watch = Stopwatch()..start();
  var type = 'result';
  final Object value = runZoned(() {
    try {
      return call();
    } catch (error) {
      type = 'error';
      return error.toString();
    }
  }, zoneSpecification: ZoneSpecification(print: (self, parent, zone, line) => printed.writeln(line)));
  final time = watch.elapsedMicroseconds / 1e6;
  if (printed.isNotEmpty) item('output', printed.toString());
  item(type, value, time);
}

void main() {
  check(() => solution(1, 2));
  check(() => solution(40, 2));
}
