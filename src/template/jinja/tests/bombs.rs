//! Templates that try to use all memory, time or stack. Each template must fail with an error of one line.

use super::*;

/// Returns the error of a template.
fn said(source: &str) -> String {
    let rendered = Jinja::parse(source, Family::Glm4).and_then(|jinja| jinja.run(&[Message::user("x"), Message::user("y")], None));
    match rendered {
        Ok(text) => panic!("{:?} makes {} bytes: {:?}", short(source), text.len(), short(&text)),
        Err(e) => e.to_string(),
    }
}

fn short(text: &str) -> String {
    text.chars().take(120).collect()
}

/// Returns a template that sets `ns.x` to `from`, and then assigns `body` to `ns.x` `n` times.
fn grown(from: &str, n: usize, body: &str) -> String {
    format!("{{% set ns = namespace(x={from}) %}}{{% for i in range({n}) %}}{{% set ns.x = {body} %}}{{% endfor %}}{{{{ ns.x | length }}}}")
}

#[test]
fn values_that_double_are_too_large() {
    let doublings = [
        ("'ab'", "ns.x + ns.x"),
        ("'ab'", "ns.x ~ ns.x"),
        ("'ab'", "ns.x * 2"),
        ("'ab'", "2 * ns.x"),
        ("'ab'", "[ns.x, ns.x] | join"),
        ("'ab'", "ns.x.join([ns.x, ns.x])"),
        ("'ab'", "'%s%s' | format(ns.x, ns.x)"),
        ("'ab'", "'{0}{0}'.format(ns.x)"),
        ("'ab'", "ns.x | replace('a', 'aa')"),
        ("'ab'", "ns.x.replace('', 'x')"),
        ("'ab'", "[ns.x, ns.x] | tojson"),
        ("'ab'", "[ns.x, ns.x] | string"),
        ("'ab'", "ns.x | map('replace', 'a', 'aab') | join ~ ns.x"),
        ("[1]", "ns.x + ns.x"),
        ("[1]", "ns.x * 2"),
        ("[1]", "[ns.x, ns.x]"),
        ("[1]", "{'a': ns.x, 'b': ns.x}"),
        ("[1]", "(ns.x, ns.x)"),
        ("[1]", "dict(a=ns.x, b=ns.x)"),
        ("[1]", "[ns.x, ns.x] | list"),
        ("[1]", "ns.x | chain(ns.x)"),
        ("[1]", "ns.x | zip(ns.x)"),
    ];
    for (from, body) in doublings {
        let said = said(&grown(from, 200, body));
        // On a busy machine the template may reach the time limit first.
        let is_too_large = said.contains("chat_template: a value of the template has more than 8 MB");
        assert!(is_too_large || said.contains("runs too long"), "{body}: {said}");
    }
}

#[test]
fn one_step_cannot_take_it_all() {
    let s = "{% set s = 'ab' * 1000000 %}";
    let steps = [
        "{{ s * 1000000 }}",
        "{{ 99999999 * s }}",
        "{{ [s] * 99999999 }}",
        "{{ s | indent(1000000000) }}{{ s }}",
        "{{ ('\n' * 1000) | indent(width=100000000, blank=true) }}",
        "{{ s.replace('a', s) }}",
        "{{ s | replace('', s) }}",
        "{{ s | join(s) }}",
        "{{ s.join(s) }}",
        "{{ s.split('b') | join(s) }}",
        "{{ s.split('b') | length }}",
        "{{ s | list | length }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '%*d' | format(1000000000, 1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 1000000000) }}",
        "{{ [messages, messages] | tojson(indent=1000000000) }}",
        "{{ range(100001) }}",
        "{{ range(1, 9223372036854775807, 2) | length }}",
        "{{ messages | batch(1000000000, 'x') }}",
        "{{ range(100000) | join(s) }}",
        "{{ s.join(range(100000)) }}",
        "{{ ([range(100000)] * 10000) ~ '' }}",
        "{{ ([range(100000)] * 10000) | string }}",
        "{{ [range(100000), range(100000)] | tojson(separators=[s, s]) }}",
        "{{ '%s' | format([range(100000)] * 10000) }}",
        "{{ s | replace('a', [s]) }}",
        "{{ s | replace('a', [s, s] | list) }}",
        "{{ s.split('b') | join([s]) }}",
        "{{ s.split('b')[:9999] | join(d=s) }}",
        "{{ messages | sort(attribute='a,' * 100000) }}",
        "{{ messages | groupby('a.' * 100000) }}",
        "{% autoescape 'html' %}{{ ('<' * 4000) | replace('&', s) }}{% endautoescape %}",
        "{{ s.strip(s) }}",
        "{{ s | trim(s ~ 'b') }}",
        "{{ [s, s] | sum(start='') }}",
        "{% for i in [1] %}{{ loop.cycle() }}{% endfor %}",
        "{% set ns = namespace(a=1) %}{% for i in [1] %}{% set ns.l = loop %}{% if loop.changed(ns) %}x{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100) %}{% with %}{% macro m() %}{{ a }}{% endmacro %}{% endwith %}{% endfor %}{% endfor %}",
        "{{ debug() }}",
    ];
    for step in steps {
        let said = said(&format!("{}{step}", s.replace("1000000", "500000")));
        assert!(said.starts_with("chat_template: ") || said.starts_with("the chat template"), "{step}: {said}");
    }
    // The compiler multiplies constants.
    for source in ["{{ 'a' * 100000000 }}", "{{ 'a' * (9999 * 9999) }}", "{{ ['a'] * 10 ** 8 }}", &"{{ 'a' * 9999 }}".repeat(200)] {
        assert!(said(source).contains("repeated"), "{}", said(source));
    }
    assert_eq!(rendered("{{ [1, 2] | sum }}{{ ' a ' | trim }}{{ 'xax'.strip('x') }}{{ [2, 1] | sort | join('-') }}", &[]), "3aa1-2");
    assert_eq!(rendered("{{ '-' * 3 }}{{ 3 * '+' }}{{ 6 * 7 }}{{ [1] * 2 }}{{ 2 ** 3 }}", &[]), "---+++42[1, 1]8");
}

#[test]
fn output_has_an_end() {
    let long = "x".repeat(100_000);
    let written = [
        format!("{{% for i in range(100000) %}}{long}{{% endfor %}}"),
        format!("{{% set y %}}{{% for i in range(100000) %}}{long}{{% endfor %}}{{% endset %}}{{{{ y | length }}}}"),
        format!("{{% macro f() %}}{long}{long}{{% endmacro %}}{{% for i in range(100000) %}}{{{{ f() }}}}{{% endfor %}}"),
        format!("{{% set s = '{long}' %}}{{% for i in range(100000) %}}{{{{ s }}}}{{% endfor %}}"),
        format!("{{% set s = '{long}' %}}{{% for i in range(100000) %}}{{{{ [s, [s]] }}}}{{% endfor %}}"),
        format!("{{% filter upper %}}{{% for i in range(100000) %}}{long}{{% endfor %}}{{% endfilter %}}"),
    ];
    for source in written {
        let said = said(&source);
        assert!(
            said.contains("the template writes more than 1") || said.contains("a value of the template has more than 8 MB"),
            "{}: {said}",
            short(&source)
        );
    }
}

#[test]
fn all_variables_together_have_a_limit() {
    let many: String = (0..2000).map(|i| format!("{{% set v{i} = s ~ '{i}' %}}")).collect();
    let said = said(&format!("{{% set ns = namespace(s='{}') %}}{{% set s = ns.s.replace('a', 'a'*1000) %}}{many}", "a".repeat(1000)));
    assert!(said.contains("the template uses more than 2"), "{said}");
}

#[test]
fn the_stack_is_deep_enough_or_the_source_is_refused() {
    let deep = |open: &str, inner: &str, close: &str, n: usize| format!("{}{inner}{}", open.repeat(n), close.repeat(n));
    for n in [50, 500, 2000, 15_000] {
        let sources = [
            format!("{{{{ {} }}}}", deep("[", "1", "]", n)),
            format!("{{{{ {} }}}}", deep("(", "1", ")", n)),
            format!("{{{{ {} }}}}", deep("{'a':", "1", "}", n)),
            format!("{{{{ {} }}}}", deep("not ", "1", "", n)),
            format!("{{{{ {} }}}}", deep("-", "1", "", n)),
            format!("{{{{ x{} }}}}", deep("+1", "", "", n)),
            format!("{{{{ 1{} }}}}", deep("+x", "", "", n)),
            format!("{{{{ 'a'{} }}}}", deep("~'a'", "", "", n)),
            format!("{{{{ x{} }}}}", deep("|d", "", "", n)),
            format!("{{{{ x{} }}}}", deep(".a", "", "", n)),
            format!("{{{{ x{} }}}}", deep("[0]", "", "", n)),
            format!("{{{{ {} }}}}", deep("1 if x else ", "2", "", n)),
            format!("{{{{ {} }}}}", deep("f(", "1", ")", n)),
            deep("{% if x %}", "a", "{% endif %}", n),
            deep("{% for a in x %}", "a", "{% endfor %}", n),
            deep("{% set a %}", "a", "{% endset %}", n),
            deep("{% filter upper %}", "a", "{% endfilter %}", n),
            format!("{{% if x %}}{}{{% endif %}}", deep("{% elif x %}", "a", "", n)),
            deep("{% macro m() %}", "a", "{% endmacro %}", n),
            deep("{% call m() %}", "a", "{% endcall %}", n),
            deep("{% with a = 1 %}", "a", "{% endwith %}", n),
        ];
        for source in sources {
            let _ = Jinja::parse(&source, Family::Glm4).and_then(|jinja| jinja.run(&[Message::user("x")], None));
        }
    }
    for (from, body) in [("[1]", "[ns.x]"), ("[1]", "{'a': ns.x}"), ("[1]", "(ns.x,)"), ("[1]", "ns.x | items"), ("[1]", "[ns.x] | list")] {
        let said = said(&grown(from, 100_000, body));
        assert!(said.contains("nested more than 256 deep") || said.starts_with("the chat template"), "{body}: {said}");
    }
    for body in ["ns", "[ns]", "{'a': ns}", "dict(a=ns)", "namespace(a=ns)", "(ns, 1)"] {
        let source = format!("{{% set ns = namespace(x=1) %}}{{% set ns.x = {body} %}}{{{{ ns }}}}");
        let said = said(&source);
        assert!(said.contains("stores a namespace in another value") || said.starts_with("the chat template"), "{body}: {said}");
    }
    // A slice of a slice of a slice…
    assert_eq!(rendered(&grown("[1, 2]", 20_000, "ns.x[0:]"), &[]), "2");
    assert_eq!(rendered(&grown("[1, 2]", 20_000, "ns.x | reverse"), &[]), "2");
    assert!(said("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").contains("recursion"));
}

#[test]
fn time_has_an_end() {
    let endless = "{% for a in range(10000) %}{% for b in range(10000) %}{% set c = a %}{% endfor %}{% endfor %}";
    assert!(said(endless).contains("runs too long"), "{}", said(endless));
    let compares = "{% set s = 'a' * 500000 %}{% set t = s ~ 'b' %}{% set u = s ~ 'c' %}\
        {% for a in range(100000) %}{% for b in range(100000) %}{% if t in u or t == u %}{% endif %}{% endfor %}{% endfor %}";
    assert!(said(compares).contains("runs too long"), "{}", said(compares));
    // Each test compares an item with up to 100 000 others, and no instruction lies between two tests.
    let tests = "{% set l = range(100000) | list %}{{ l | reject('in', l) | list | length }}";
    assert!(said(tests).contains("runs too long"), "{}", said(tests));
}

#[test]
fn a_long_conversation_is_within_the_limits() {
    let messages: Vec<Message> = (0..2000).map(|i| Message::user(format!("{i} {}", "word ".repeat(100)))).collect();
    let source = "{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = '<' ~ m.role ~ '>' + m.content %}{{ ns.text }}\
        {% if loop.last %}{{ messages[1:] | selectattr('role', 'equalto', 'user') | list | length }}{% endif %}{% endfor %}";
    let text = rendered(source, &messages);
    assert!(text.ends_with("1999") && text.len() > 1_000_000, "{}", text.len());
}
