//! Reports of tools.

pub(super) const PYTEST: &str = r#"<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="2" skipped="2" tests="14" time="0.276"><testcase classname="test_a" name="test_ok" time="0.001" /><testcase classname="test_a" name="test_bad" time="0.001"><failure message="assert 0">&gt;   def test_bad(): assert 0
E   assert 0</failure></testcase><testcase classname="test_a" name="test_sk" time="0.000"><skipped type="pytest.skip" message="unconditional skip">a.py:5</skipped></testcase><testcase classname="test_a" name="test_xf" time="0.001"><skipped type="pytest.xfail" message="" /></testcase><testcase classname="test_a" name="test_err" time="0.000"><error message="failed on setup with &quot;ValueError&quot;">ValueError</error></testcase><testcase classname="test_a" name="test_p[a\x1bb]" time="0.001" /><testcase classname="test_a" name="test_p[q&quot;&lt;&amp;&gt;]" time="0.001" /></testsuite></testsuites>"#;

pub(super) const SUREFIRE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuite xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="surefire-test-report.xsd" version="3.0.2" name="a.FirstTest" time="0.03" tests="4" errors="0" skipped="1" failures="1">
  <properties><property name="java.version" value="17"/></properties>
  <testcase name="ok" classname="a.FirstTest" time="0.01"/>
  <testcase name="bad" classname="a.FirstTest" time="0.01">
    <failure message="expected: &lt;1&gt; but was: &lt;2&gt;" type="org.opentest4j.AssertionFailedError"><![CDATA[at a.FirstTest.bad <testcase name="no"/>]]></failure>
    <rerunFailure message="again"><stackTrace>x</stackTrace></rerunFailure>
  </testcase>
  <testcase name="off" classname="a.FirstTest" time="0.0"><skipped message="later"/></testcase>
  <testcase name="flaky" classname="a.FirstTest" time="0.0"><flakyFailure message="once"/><system-out>&lt;failure/&gt;</system-out></testcase>
</testsuite>"#;

pub(super) const GO_JUNIT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="2" skipped="1">
	<testsuite name="a" tests="4" failures="2" errors="0" id="0" skipped="1" time="0.004">
		<testcase name="TestOk" classname="a" time="0.000"></testcase>
		<testcase name="TestBad" classname="a" time="0.000"><failure message="Failed"><![CDATA[    a_test.go:4: x]]></failure></testcase>
		<testcase name="TestSkip" classname="a" time="0.000"><skipped message="x"></skipped></testcase>
		<testcase name="TestSub/c" classname="a" time="0.000"><failure message="Failed"></failure></testcase>
	</testsuite>
</testsuites>"#;

pub(super) const JEST: &str = "<?xml version='1.0' encoding='UTF-8'?>
<testsuites name='jest tests' tests='3' failures='1' errors='0' time='1.2'>
  <testsuite name='sum' errors='0' failures='1' skipped='1' tests='3'>
    <testcase classname='sum adds' name='sum adds' time='0.003'></testcase>
    <testcase classname='sum fails' name='sum fails' time='0.003'><failure>Error: \x1b[2mexpect\x1b[22m</failure></testcase>
    <testcase classname='sum later' name='sum later' time='0'><skipped/></testcase>
  </testsuite>
</testsuites>";

pub(super) const NODE: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<testsuites>
	<testcase name="ok" time="0.013137" classname="test"/>
	<testcase name="bad" time="0.106384" classname="test" failure="falsy"><failure type="testCodeFailure" message="falsy">at</failure></testcase>
	<testcase name="sk" time="0.000239" classname="test"><skipped type="skipped" message="true"/></testcase>
	<!-- tests 3 -->
</testsuites>"#;

pub(super) const GOOGLE_TEST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="0" disabled="1" errors="0"><testsuite name="A" tests="3" failures="0" disabled="1" skipped="1">
<testcase name="Ok" status="run" result="completed" classname="A"/>
<testcase name="DISABLED_Off" status="notrun" result="suppressed" classname="A"/>
<testcase name="Skip" status="run" result="skipped" classname="A"><skipped message=""/></testcase>
</testsuite></testsuites>"#;
