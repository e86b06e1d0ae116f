#!/usr/bin/perl
# A toy runtime in Perl, written from spec/conformance/protocol.md, spec/*.md and the vectors alone: producers,
# publishing, sessions and failures, and no mutation, so it names the commands that it knows and loads no state.
#     ./keep conform -- perl tests/conformance/perl-toy/driver.pl
# Its store is one file, written beside and renamed over the old one.
use strict; use warnings; use utf8;
use JSON::PP; use IO::Handle;
my $J = JSON::PP->new->utf8->canonical;
my ($dir, $S, %C);
sub reject { die { reason => $_[0] } }
sub save { my $t = "$dir/state.tmp"; open my $f, '>:raw', $t or die $!; print $f $J->encode($S); $f->flush; $f->sync; close $f; rename $t, "$dir/state" or die $! }
sub load { $S = undef; if (open my $f, '<:raw', "$dir/state") { local $/; $S = $J->decode(<$f>) } }
sub active { $S->{run} && $S->{run}{status} eq 'active' }
sub gate { my $now = shift;
  reject('run_active') if active(); reject('workflow_not_active') if $S->{status} ne 'active';
  reject('error_stands') if $S->{error}; reject('in_maintenance') if $S->{maintenance};
  reject('backing_off') if $now < $S->{backoff_until} }
sub row { my $n = shift; (grep { $_->{declared}{name} eq $n } @{$S->{handlers}})[0] }
sub live { my $c = shift; reject('run_unknown') unless $S->{run} && $S->{run}{id} eq $c->{run}; $S->{run} }
sub session { my $c = shift; reject('session_unknown') unless $S->{session} && $S->{session}{id} eq $c->{session}; $S->{session} }
sub publish { my ($p, $by) = @_; my $k = $p->{key};
  reject('topic_unknown') unless grep { $_ eq $k->{topic} } @{$S->{topics}};
  reject('title_missing') if $k->{id} eq '' || $p->{title} !~ /[^\s\x{1c}-\x{1f}]/;
  reject('too_large') if length $p->{payload} > $S->{policy}{json_max_chars};
  my ($e) = grep { $_->{key}{topic} eq $k->{topic} && $_->{key}{id} eq $k->{id} } @{$S->{events}};
  if ($e) { return if $e->{status} ne 'pending'; @$e{qw(title payload)} = @$p{qw(title payload)} }
  else { push @{$S->{events}}, { key => $k, seq => $S->{next_seq}++, status => 'pending', owner => '', title => $p->{title},
      payload => $p->{payload}, created_by => $by, causes => [] } }
  for my $h (@{$S->{handlers}}) { $h->{dirty} = JSON::PP::true if grep { $_ eq $k->{topic} } @{$h->{declared}{subscribes}} } }
sub block { $S->{error} //= { kind => 'blocked', cause => $_[0], run => $_[1]{id}, message => $_[1]{message}, tool => '', request => undef } }

%C = (
  resume => sub { reject('workflow_edge') unless $S->{status} =~ /^(ready|paused)$/; $S->{status} = 'active'; () },
  pause => sub { reject('workflow_edge') unless $S->{status} eq 'active'; $S->{status} = 'paused'; () },
  grant => sub { my $c = shift; my @g = grep { $_->{tool} ne $c->{tool} } @{$S->{grants}};
    $S->{grants} = [@g, { tool => $c->{tool}, mode => $c->{mode} }];
    my $e = $S->{error}; $S->{error} = undef if $e && $e->{kind} eq 'approval' && $e->{cause} eq 'permission' && $e->{tool} eq $c->{tool}; () },
  reconnect => sub { my $e = $S->{error}; reject('no_error') unless $e && $e->{kind} eq 'approval' && $e->{cause} eq 'auth'; $S->{error} = undef; () },
  clear_error => sub { my $e = $S->{error}; reject('no_error') unless $e && $e->{kind} =~ /internal|blocked/;
    reject('logic_block') if $e->{cause} eq 'logic'; $S->{error} = undef; () },
  retry => sub { reject('run_active') if active(); for (@{$S->{handlers}}) { $_->{transient_failures} = $_->{logic_failures} = 0 }
    $S->{backoff_until} = 0; $S->{maintenance} = undef; $S->{error} = undef if $S->{error} && $S->{error}{kind} eq 'blocked'; () },
  exit_maintenance => sub { reject('not_in_maintenance') unless $S->{maintenance}; $S->{maintenance} = undef; () },
  publish => sub { publish($_[0]{publication}, ''); () },
  start_session => sub { my $c = shift; gate($c->{now}); reject('session_open') if $S->{session}; reject('id_empty') if $c->{session} eq '';
    $S->{session} = { id => $c->{session}, status => 'open', runs => 0, commits => 0 }; () },
  finish_session => sub { my $c = shift; reject('run_active') if active(); my $s = session($c); $S->{session} = undef;
    $s->{status} = $s->{commits} ? 'completed' : 'failed'; (retired => { session => $s }) },
  run_now => sub { my $c = shift; gate($c->{now}); my $h = row($c->{handler}) or reject('handler_unknown');
    if ($h->{declared}{kind} eq 'consumer') { $h->{dirty} = JSON::PP::true } else { $h->{due_at} = $c->{now} } () },
  create_run => sub { my $c = shift; gate($c->{now}); my $s = session($c); reject('session_spent') if $s->{runs} >= $S->{policy}{session_runs};
    my $h = row($c->{handler}) or reject('handler_unknown'); reject('id_empty') if $c->{run} eq ''; $s->{runs}++; $h->{dirty} = JSON::PP::false;
    $S->{run} = { id => $c->{run}, handler => $c->{handler}, kind => $h->{declared}{kind}, session => $s->{id}, version => $S->{version},
      status => 'active', phase => 'pending', outcome => '', retry_of => '', created_at => $c->{now}, reserved => [], causes => [],
      data => 'null', title => '', result => '', message => '', abandoned => JSON::PP::false }; () },
  begin => sub { my $r = live(@_); reject('run_not_active') unless active(); reject('phase') unless $r->{phase} eq 'pending';
    my $cons = $r->{kind} eq 'consumer'; $r->{phase} = $cons ? 'preparing' : 'executing';
    (effects => [{ type => 'call_handler', run => $r->{id}, handler => $r->{handler}, version => $r->{version}, function => $cons ? 'prepare' : 'producer' }]) },
  commit_producer => sub { my $c = shift; my $r = live($c); reject('run_not_active') unless active(); reject('wrong_kind') if $r->{kind} ne 'producer';
    reject('phase') unless $r->{phase} eq 'executing'; my $h = row($r->{handler}); my $d = $h->{declared};
    reject('cron_time') if ($d->{cron} ne '') != defined $c->{due_at} || defined $c->{due_at} && $c->{due_at} <= $r->{created_at};
    reject('too_large') if length($c->{state} // '') > $S->{policy}{json_max_chars};
    publish($_, $r->{id}) for @{$c->{publications}};
    $h->{state} = $c->{state} if defined $c->{state};
    $h->{due_at} = $d->{cron} ne '' ? $c->{due_at} : $d->{interval_ms} ? $r->{created_at} + $d->{interval_ms} : -1;
    $h->{transient_failures} = $h->{logic_failures} = 0; $S->{session}{commits}++;
    $r->{phase} = $r->{status} = 'committed'; $S->{run} = undef; (retired => { run => $r }) },
  end_run => sub { my $c = shift; my $r = live($c); reject('run_not_active') unless active(); my ($st, $p) = ($c->{status}, $S->{policy}); my @fx;
    reject('cause_mismatch') if ($st eq 'paused:approval') != ($c->{cause} =~ /^(auth|permission|request)$/ ? 1 : 0) || $st ne 'paused:approval' && $c->{cause} ne '';
    reject('not_uncertain') if $st eq 'paused:reconciliation';
    reject('nothing_asked') if $c->{cause} eq 'request' || $c->{cause} eq 'permission' && ($c->{tool} eq '' || grep { $_->{tool} eq $c->{tool} } @{$S->{grants}});
    @$r{qw(status message)} = ($st, $c->{message}); my $h = row($r->{handler});
    $h->{dirty} = JSON::PP::true if $r->{kind} eq 'consumer';
    $S->{error} //= { kind => 'internal', cause => '', run => $r->{id}, message => $c->{message}, tool => '', request => undef } if $st eq 'failed:internal';
    $S->{error} //= { kind => 'approval', cause => $c->{cause}, run => $r->{id}, message => $c->{message}, tool => $c->{tool}, request => undef } if $st eq 'paused:approval';
    if ($st =~ /transient|crashed/) { my $n = ++$h->{transient_failures};
      if ($n <= $p->{transient_retries}) { my $w = $p->{backoff_base_ms} * 2 ** ($n - 1); $w = $p->{backoff_max_ms} if $w > $p->{backoff_max_ms}; $S->{backoff_until} = $c->{now} + $w }
      else { block('transient', $r) } }
    if ($st eq 'failed:logic') { $S->{maintenance} = { run => $r->{id}, handler => $r->{handler}, message => $c->{message} };
      block('logic', $r) if ++$h->{logic_failures} >= $p->{logic_failures};
      @fx = ({ type => 'repair', run => $r->{id}, handler => $r->{handler}, message => $c->{message} }) unless $S->{error} }
    my $s = $S->{session}; $s->{status} = 'failed'; $S->{session} = $S->{run} = undef; (effects => \@fx, retired => { run => $r, session => $s }) },
  deploy => sub { my $c = shift; reject('run_active') if active(); my (%t, %h, %sub);
    reject('bad_declaration') if $c->{version} eq '' || grep { $_ eq '' || $t{$_}++ } @{$c->{topics}};
    my @rows; for my $d (@{$c->{handlers}}) {
      reject('bad_declaration') if $d->{name} eq '' || $h{$d->{name}}++ || grep { $sub{$_}++ || !$t{$_} } @{$d->{subscribes}};
      my $sched = $d->{interval_ms} || $d->{cron} ne ''; my $cons = $d->{kind} eq 'consumer';
      reject('bad_declaration') if $cons ? $sched || !@{$d->{subscribes}} : @{$d->{subscribes}} || $d->{has_mutate} || $d->{interval_ms} < 0 || $d->{interval_ms} && $d->{cron} ne '';
      my $old = row($d->{name}); $old = undef if $old && $old->{declared}{kind} ne $d->{kind};
      my $same = $old && $old->{declared}{interval_ms} == $d->{interval_ms} && $old->{declared}{cron} eq $d->{cron};
      push @rows, { state => '', wake_at => 0, transient_failures => 0, logic_failures => 0, %{$old // {}}, declared => $d,
        dirty => $cons ? JSON::PP::true : JSON::PP::false, due_at => $cons ? -1 : $same ? $old->{due_at} : $c->{now} } }
    $S->{handlers} = \@rows; @$S{qw(version topics)} = @$c{qw(version topics)}; $S->{maintenance} = undef;
    $S->{error} = undef if $S->{error} && $S->{error}{kind} eq 'blocked' && $S->{error}{cause} eq 'logic';
    $S->{status} = 'ready' if $S->{status} eq 'draft'; () },
);

sub step { my $c = shift; my $f = $C{$c->{type}} or return; my $before = $J->encode($S);
  my %out = eval { $f->($c) };
  if (my $x = $@) { $S = $J->decode($before); die $x unless ref $x; return { type => 'rejected', reason => $x->{reason} } }
  { type => 'accepted', state => $S, effects => $out{effects} // [], retired => { run => undef, mutation => undef, session => undef, %{$out{retired} // {}} } } }

$| = 1; binmode STDOUT, ':raw';
while (my $line = <STDIN>) {
  my $q = $J->decode($line); my $op = $q->{op}; my %a;
  eval {
    if ($op eq 'hello') { $dir = $q->{data}; load(); %a = (protocol => 1, name => 'perl toy', version => '0.1', supports => [], commands => [sort keys %C]) }
    elsif ($op eq 'reset') { $S = { workflow => $q->{workflow}, status => 'draft', version => '', topics => [], error => undef, maintenance => undef,
        backoff_until => 0, grants => [], approvals => [], session => undef, run => undef, mutation => undef, handlers => [], events => [], next_seq => 1, policy => $q->{policy} }; save() }
    elsif ($op eq 'do') { my $o = step($q->{command}); %a = $o ? (outcome => $o) : (unsupported => $q->{command}{type}); save() if $o && $o->{type} eq 'accepted' }
    elsif ($op eq 'state') { %a = (state => $S) }
    elsif ($op eq 'recover') { my @fx;
      while (active()) { push @fx, @{ step({ type => 'end_run', now => $q->{now}, run => $S->{run}{id}, status => 'crashed', message => $q->{message}, cause => '', tool => '' })->{effects} } }
      step({ type => 'finish_session', now => $q->{now}, session => $S->{session}{id} }) if $S->{session}; save(); %a = (state => $S, effects => \@fx) }
    elsif ($op eq 'quit') { }
    else { %a = (unsupported => $op) }
  };
  %a = (error => "$@") if $@;
  print $J->encode({ id => $q->{id}, %a }), "\n";
  last if $op eq 'quit';
}
