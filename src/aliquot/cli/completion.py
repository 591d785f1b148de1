"""``aliquot completion``: scripts for bash, zsh and fish, made from the table of commands.

Words that depend on the host (GPUs, profiles, named configs, nodes) come from ``aliquot __complete`` when Tab is
pressed.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.cli.command_table import ROOT
from aliquot.cli.framework import output
from aliquot.cli.framework.command_model import CliCommand, CommandOption
from aliquot.cli.framework.parser import Args


def run(args: Args) -> int:
    text = script(args.shell)
    output.emit(output.build("Completion", shell=args.shell, script=text), args.output, text.rstrip("\n"))
    return 0


def script(shell: str) -> str:
    """Return the script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def leaves(command: CliCommand = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], CliCommand]]:
    """Yield every command with its path, groups too, without hidden ones."""
    yield path, command
    for child in command.children:
        if not child.hidden:
            yield from leaves(child, (*path, child.name))


def _completion_kind(option: CommandOption) -> str:
    """Return what may follow an option: a kind of word, ``=a b c`` for fixed words, or nothing."""
    return "=" + " ".join(option.choices) if option.choices else option.complete


def _bash() -> str:
    cases, after = [], []
    for path, command in leaves():
        key = " ".join(path)
        words = [c.name for c in command.children if not c.hidden]
        words += [n for o in command.accepted if not o.positional for n in o.names] + ["--help"]
        places = [_completion_kind(o) or "-" for o in command.accepted if o.positional]
        cases.append(f"    '{key}') offers='{' '.join(words)}'; places=({' '.join(repr(p) for p in places)}) ;;")
        for option in command.accepted:
            if not option.positional and option.takes_value:
                after += [f"    '{key} {name}') kind='{_completion_kind(option)}' ;;" for name in option.names]
    parts = {"CASES": "\n".join(cases), "AFTER": "\n".join(after), "VALUED": " | ".join(_valued())}
    parts["GROUPS"] = "|".join(path[0] for path, command in leaves() if len(path) == 1 and command.children)
    text = _BASH
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _valued() -> list[str]:
    """Return every option that is followed by a value, so that the value does not count as a verb."""
    found = {n for _, c in leaves() for o in c.accepted if o.takes_value and not o.positional for n in o.names}
    return sorted(found)


def _zsh() -> str:
    return "#compdef aliquot\nautoload -U +X bashcompinit && bashcompinit\n" + _bash()


def _fish() -> str:
    lines = ["# completion of aliquot for fish", "complete -c aliquot -f"]
    lines.append(_FISH.strip("\n").replace("@VALUED@", " ".join(_valued())))
    for path, command in leaves():
        words = " ".join(path)
        for child in command.children:
            if not child.hidden:
                end = f"-a {child.name} -d {_fish_quoted(child.help)}"
                lines.append(f"complete -c aliquot -n '__aliquot_exactly {words}' {end}")
        lines += [_fish_option(option, f"__aliquot_in {words}") for option in command.accepted]
    return "\n".join(lines) + "\n"


def _fish_option(option: CommandOption, condition: str) -> str:
    words = f"'{' '.join(option.choices)}'" if option.choices else ""
    if option.complete in ("gpus", "profiles", "types", "nodes", "templates", "faults"):
        words = f"'(aliquot __complete {option.complete} 2>/dev/null)'"
    elif option.complete == "configs":
        words = "'(__aliquot_configs)'"
    files = " -F" if option.complete == "file" else ""
    if option.positional:
        return f"complete -c aliquot -n '{condition}'{files}" + (f" -a {words}" if words else "")
    names = "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in option.names)
    value = "" if not option.takes_value else " -r" if option.complete == "file" else " -x"
    return (
        f"complete -c aliquot -n '{condition}'{names}{value}{files}"
        + (f" -a {words}" if words else "")
        + f" -d {_fish_quoted(option.help)}"
    )


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_FISH = r"""
function __aliquot_verbs
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip -eq 1
            set skip 0
        else if contains -- $word @VALUED@
            set skip 1
        else if not string match -q -- '-*' $word
            echo $word
        end
    end
end
function __aliquot_in
    set -l plain (__aliquot_verbs)
    test (count $plain) -ge (count $argv); or return 1
    for n in (seq (count $argv))
        test "$plain[$n]" = "$argv[$n]"; or return 1
    end
end
function __aliquot_exactly
    test (count (__aliquot_verbs)) -eq (count $argv); and __aliquot_in $argv
end
function __aliquot_configs
    set -l words (commandline -opc)
    for n in (seq (count $words))
        if contains -- $words[$n] -f --file --config-file
            aliquot __complete configs $words[(math $n + 1)] 2>/dev/null
        end
    end
end
"""

_BASH = r"""# completion of aliquot for bash
_aliquot_ask() { "${COMP_WORDS[0]}" __complete "$@" 2>/dev/null; }
_aliquot_fill() {
  local kind=$1 cur=$2 file n
  case $kind in
    =*) COMPREPLY=($(compgen -W "${kind#=}" -- "$cur")) ;;
    file) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")) ;;
    configs)
      for ((n = 1; n < COMP_CWORD; n++)); do
        case ${COMP_WORDS[n]} in -f | --file | --config-file) file=${COMP_WORDS[n + 1]} ;; esac
      done
      COMPREPLY=($(compgen -W "$(_aliquot_ask configs "$file")" -- "$cur")) ;;
    gpus | profiles | types | nodes | templates | faults)
      COMPREPLY=($(compgen -W "$(_aliquot_ask "$kind")" -- "$cur")) ;;
  esac
}
_aliquot() {
  local cur prev verb='' offers='' kind='' count=0 n word skip=0
  local -a places=()
  COMPREPLY=()
  cur=${COMP_WORDS[COMP_CWORD]}
  prev=${COMP_WORDS[COMP_CWORD - 1]}
  for ((n = 1; n < COMP_CWORD; n++)); do
    word=${COMP_WORDS[n]}
    if ((skip)); then skip=0; continue; fi
    case $word in
      @VALUED@) skip=1 ;;
      -*) ;;
      *)
        if [[ -z $verb ]]; then verb=$word
        elif [[ $verb =~ ^(@GROUPS@)$ ]]; then verb="$verb $word"
        else count=$((count + 1)); fi ;;
    esac
  done
  case "$verb $prev" in
@AFTER@
  esac
  if [[ -n $kind ]]; then _aliquot_fill "$kind" "$cur"; return; fi
  case "$verb" in
@CASES@
  esac
  if [[ $cur != -* && -n ${places[count]} && ${places[count]} != - ]]; then
    _aliquot_fill "${places[count]}" "$cur"
  else
    COMPREPLY=($(compgen -W "$offers" -- "$cur"))
  fi
}
complete -F _aliquot aliquot
"""
