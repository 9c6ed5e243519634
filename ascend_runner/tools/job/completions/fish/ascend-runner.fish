# Completion for ascend-runner, ascend-job and ascend-rank-table, written by scripts/generate.

function __ascend_runner_jobs
    set -l bases /run/ascend-runner /dev/shm/ascend-runner-(id -u)
    set -q XDG_RUNTIME_DIR; and set -a bases $XDG_RUNTIME_DIR/ascend-runner
    set -q ASCEND_RUNNER_RUN_DIR; and set bases $ASCEND_RUNNER_RUN_DIR
    set -l names
    for folder in $bases/*/
        test -O $folder -a -f $folder/job.json -a -r $folder/job.json; or continue
        # Without a pipeline: on a busy machine, one of a loop and builtins may lose its output (fish 3.6).
        for name in (string replace -rf '^{"job_id": "(\w[\w.+@-]*)", "part": "([\w.+@-]*)".*' '$1$2' <$folder/job.json)
            contains -- $name $names; or set -a names $name
        end
    end
    set -q names[1]; and printf '%s\n' $names
    for folder in (__fish_complete_directories (commandline -ct) 'directory with logs')
        contains -- (string replace -r '/\t.*' '' -- $folder) $names; or printf '%s\n' $folder
    end
end

# Prints the words of the command before the cursor, if it has begun.
function __ascend_runner_command
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case --
                set -e words[1]
                break
            case '--*=*'
                set -e words[1]
            case --rank-table --rank-table-timeout --chip --nproc-per-node --nnodes --min-nodes --node-rank --master-addr --master-port --pod-name --server-id --link --link-port --link-timeout --node-timeout --framework --conda-env --workdir --bind --stdin --launcher --hosts --job-name --log-dir --log-runs --log-max-size --html --catalogue --console --color --progress-bars --summary --grace --stop-signal --hang-timeout --hang-action --checkpoint-signal --checkpoint-grace --time-limit --max-restarts --no-restart-on --restart-on --restart-delay --linger --checkpoint-dir --perf-pattern --perf-threshold --perf-drop --perf-action --stage --hold --hook --precheck --inspect --simulate
                set -e words[1]
                set -e words[1]
            case '-*'
                set -e words[1]
            case '*'
                break
        end
    end
    set -q words[1]; and printf '%s\n' $words
end

function __ascend_runner_is_before_command
    test (count (__ascend_runner_command)) -eq 0
end

function __ascend_runner_complete_command
    set -l word (commandline -ct)
    if __ascend_runner_is_before_command; and string match -q -- '-*' $word
        return
    end
    complete -C (string join ' ' -- (__ascend_runner_command | string escape) $word)
end

complete -c ascend-runner -f -a '(__ascend_runner_complete_command)'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l rank-table -d 'rank table file, or a directory that contains jobstart_hccl.json' -r -F
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l rank-table-timeout -d 'how long to wait for a complete rank table; HCCL itself waits 1800 s' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l no-table-checks -d 'start the job even if HCCL would reject the rank table; counts that do not match their lists are corrected'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l chip -d 'chip to check the rank table for' -r -f -a '910 910B A3 310P 950'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l nproc-per-node -d 'start N ranks on each node; the platform\'s rank table and number of devices are not used' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l nnodes -d 'number of nodes' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l min-nodes -d 'also start if the rank table lists fewer nodes than expected, but at least N' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l node-rank -d 'rank of this node, counted from 0' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l master-addr -d 'host name or address of node 0' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l master-port -d 'port of node 0; not 60000 to 60031 or 16666, which HCCL uses' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l pod-name -d 'pod_name of this node in the rank table' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l server-id -d 'server_id of this node in the rank table, or another address of its server' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l link -d 'link the runners of a job of several nodes, so that a failure on one node stops all ranks everywhere and all of them exit with its status; require: start no rank before every node has joined' -r -f -a 'auto off require'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l link-port -d 'port on which node 0 listens for the other nodes' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l link-timeout -d 'how long to wait for nodes that are missing, with --link require or before a restart' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l node-timeout -d 'stop the job if a node has been out of contact for this long; off: only if HCCL reports the node as lost, or all other ranks are silent as well' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l framework -d 'framework to set variables for: auto, mindspore, mindspore-cluster, torch, tensorflow, none; auto suits all frameworks that need no scheduler process' -r -f -a 'auto mindspore mindspore-cluster torch tensorflow none'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l isolate-devices -d 'make only its own device visible to each rank (ASCEND_RT_VISIBLE_DEVICES)'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l conda-env -d 'conda environment to run COMMAND in: its name below ANACONDA_DIR, or its directory' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l workdir -d 'working directory of each rank: one per device, the current directory, or DIR' -r -f -a 'device inherit (__fish_complete_directories (commandline -ct))'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l bind -d 'bind each rank to CPU cores near its NPU: to cores of its own, or to all cores of the NUMA node' -r -f -a 'none cores numa'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l stdin -d 'rank that reads standard input, for input() and pdb; its output is shown at once and without a prefix' -r -f -a 'none'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l launcher -d 'program that starts the ranks of a node: direct, torchrun, torch.distributed.launch, init-method, mpirun, deepspeed, msrun, ray; direct is ascend-runner itself' -r -f -a 'direct torchrun torch.distributed.launch init-method mpirun deepspeed msrun ray'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l hosts -d 'all hosts of the job in the order of the nodes, each with its number of devices' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l job-name -d 'name of the job in its logs and report, and JOB_ID of the ranks' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l log-dir -d 'directory for the log of each rank and the report; ./logs/latest links to the newest one' -r -f -a '(__fish_complete_directories (commandline -ct))'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l log-runs -d 'number of earlier runs whose logs and reports are kept, in DIR/run-<n> or in ./logs, in addition to the newest one that succeeded' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l log-max-size -d 'rotate a log file before it exceeds SIZE, such as 500M, without splitting a line' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l html -d 'when to also write the report as an HTML file; failure: unless the job succeeds or a signal stops it' -r -f -a 'failure always never'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l catalogue -d 'TOML file with this site\'s own explanations of errors, which precede the built-in ones on the failure screen; its format is that of ascend_runner/diagnosis/catalogue' -r -F
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l console -d 'ranks to show on the console, such as 0 or 0,8-15' -r -f -a 'all none'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l timestamps -d 'begin each line on the console with the time'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l color -d 'color prefixes and messages; auto: on a terminal, unless NO_COLOR is set or TERM is dumb or unset, and always with FORCE_COLOR' -r -f -a 'auto always never'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l progress-bars -d 'show a line that is redrawn with carriage returns every second, or every 10 seconds if several ranks have one (fold), or each time (pass)' -r -f -a 'fold pass'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l summary -d 'write a line about the running job at this interval: running ranks, last step, slow and quiet ranks; for environments where ascend-job cannot be run' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l quiet -d 'show only warnings and errors of ascend-runner itself'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l verbose -d 'show all messages of ascend-runner itself'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l grace -d 'time to wait for the ranks to exit before they are killed' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l stop-signal -d 'signal that asks the ranks to stop; after Ctrl-C it is always INT' -r -f -a 'TERM INT'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l hang-timeout -d 'consider the job hung if no rank writes anything, or sends a heartbeat, for this long; auto adapts to the pauses of the job and is at least 10 minutes; if it is given, the flight recorders of torch and torch_npu are switched on' -r -f -a 'auto off'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l hang-action -d 'what to do about a hang, after collecting the stacks of all ranks; stop ends the job even with --max-restarts' -r -f -a 'warn restart stop'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l checkpoint-signal -d 'signal that asks for a checkpoint: sent to ascend-runner, it reaches the processes of the ranks that handle it' -r -f -a 'USR1 USR2 TERM none'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l checkpoint-grace -d 'time to wait for the ranks to save a checkpoint before SIGTERM, --time-limit, --inspect stop or --perf-action stops them; 0 disables this' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l time-limit -d 'time after which the job is stopped, with exit status 124; measured from the start of the job, across all attempts' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l max-restarts -d 'maximum number of restarts after a failure, of all nodes together; failures that a restart cannot fix are not retried' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l no-restart-on -d 'exit statuses and signals after which the job is not restarted, such as 2,SIGSEGV' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l restart-on -d 'exit statuses and signals after which the job is restarted, whatever the cause' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l restart-delay -d 'time between the end of an attempt and the start of the next one' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l exit-verdict -d 'exit with 75 if a retry by the platform may help, or 93 if it will not, instead of the exit status of a failed rank'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l linger -d 'delay the exit of a node whose ranks failed only because they lost a peer, so that the node with the cause exits first' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l checkpoint-dir -d 'directory where the training saves its checkpoints, which need not exist yet; a newer checkpoint is progress, and the newest complete one is passed to the ranks in ASCEND_RUNNER_CHECKPOINT' -r -f -a '(__fish_complete_directories (commandline -ct))'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l perf-pattern -d 'regular expression for further lines about a step, with groups named step, seconds or ms, hardware, e2e (both in ms)' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l perf-threshold -d 'consider the training slow if hardware time / end-to-end time is above RATIO in three steps in a row' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l perf-drop -d 'consider the training slow if it has lost more than this fraction of its best speed, such as 0.3; the speed is the median of 20 steps' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l perf-action -d 'what to do when the training is slow, or one rank of a node is slower than the others; stop ends the job even with --max-restarts' -r -f -a 'warn restart stop'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l stage -d 'copy the dataset SRC, a directory or a file, into the directory DST on a local disk before the ranks start; {stage:0} in COMMAND is replaced with the path of the copy, which the ranks also find in ASCEND_RUNNER_STAGED_0; repeatable' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l hold -d 'keep the runner, and thus its container, alive for this long after a failure, or until ascend-job release' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l hook -d 'run the shell command CMD at an event (before-start, checkpoint, slow, hanging, unhealthy, after-attempt, before-exit), 60 s at most; repeatable' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l precheck -d 'check this node as --check does; warn: while the job waits for its rank table, a host or a dataset, or 2 s after the start, without delaying it; stop: before the start, which an error prevents' -r -f -a 'off warn stop'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l inspect -d 'watch the NPUs, links, disks and memory of this node while the job runs, and after an error warn, ask for a checkpoint, or stop the job with exit status 124' -r -f -a 'off warn checkpoint stop'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l dry-run -d 'print the plan as JSON and start nothing'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l check -d 'report within seconds what would prevent the job from running on this node, and start nothing; the exit status is 1 if there is an error; COMMAND is optional'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l json -d 'print the results of --check as JSON'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l simulate -d 'run the job on simulated nodes, such as 4x8 for four nodes with eight ranks each: each has its own runner and, as root, its own network namespace; no NPU and no platform is needed' -r -f -a ''
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l help -d 'show help, also on a topic or an option' -r -f -a 'table nodes ranks launchers output stopping restarts performance data hooks health checks all'
complete -c ascend-runner -n '__ascend_runner_is_before_command' -l version -d 'show the version'

complete -c ascend-job -f
complete -c ascend-job -n '__fish_use_subcommand' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_use_subcommand' -l version -d 'show the version'
complete -c ascend-job -n __fish_use_subcommand -a status -d 'Show one job: its state, its ranks and the cause of a failure'
complete -c ascend-job -n '__fish_seen_subcommand_from status' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from status' -l json -d 'print JSON'
complete -c ascend-job -n '__fish_seen_subcommand_from status' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a top -d 'Show one job and its ranks live, until q is pressed'
complete -c ascend-job -n '__fish_seen_subcommand_from top' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from top' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a list -d 'List jobs, running and ended: those of this directory first, the newest last'
complete -c ascend-job -n '__fish_seen_subcommand_from list' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from list' -s n -d 'show at most N jobs (default: as many as the terminal has lines)' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from list' -l all -d 'show all jobs'
complete -c ascend-job -n '__fish_seen_subcommand_from list' -l json -d 'print JSON'
complete -c ascend-job -n '__fish_seen_subcommand_from list' -f -a ''
complete -c ascend-job -n __fish_use_subcommand -a logs -d 'Show the logs of the ranks of a job'
complete -c ascend-job -n '__fish_seen_subcommand_from logs' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from logs' -s f -l follow -d 'show further lines as they are written, until the job ends'
complete -c ascend-job -n '__fish_seen_subcommand_from logs' -s r -l ranks -d 'ranks, such as 0,8-15 (default: all)' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from logs' -s n -l lines -d 'number of lines to show for each rank, or \'all\' (default: 10; all with --since or --grep)' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from logs' -l since -d 'show only the lines of the last DURATION, such as 10m, according to their timestamps' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from logs' -l grep -d 'show only the lines that match this regular expression' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from logs' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a stacks -d 'Show what ranks are doing, and which one the others wait for'
complete -c ascend-job -n '__fish_seen_subcommand_from stacks' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from stacks' -s r -l ranks -d 'ranks, such as 0,8-15 (default: all)' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from stacks' -l for -d 'compare the ranks for at most DURATION, until one stands out; 0 takes a single sample (default: 10s)' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from stacks' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a events -d 'Show the state changes of a job'
complete -c ascend-job -n '__fish_seen_subcommand_from events' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from events' -s f -l follow -d 'wait for further events until the job ends'
complete -c ascend-job -n '__fish_seen_subcommand_from events' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a metrics -d 'Print or serve the metrics of a job for Prometheus'
complete -c ascend-job -n '__fish_seen_subcommand_from metrics' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from metrics' -l listen -d 'serve the metrics at http://ADDRESS:PORT/metrics until interrupted (default ADDRESS: 127.0.0.1)' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from metrics' -l textfile -d 'write the metrics to a file in DIR for node-exporter until the job ends' -r -f -a '(__fish_complete_directories (commandline -ct))'
complete -c ascend-job -n '__fish_seen_subcommand_from metrics' -l every -d 'time between writes of --textfile (default: 15s)' -r -f -a ''
complete -c ascend-job -n '__fish_seen_subcommand_from metrics' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a report -d 'Write the report of a job as an HTML file'
complete -c ascend-job -n '__fish_seen_subcommand_from report' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from report' -s o -l output -d 'the file to write (default: beside the JSON report; none for several nodes)' -r -F
complete -c ascend-job -n '__fish_seen_subcommand_from report' -l public -d 'omit arguments, hosts, output, and all variables except those that number the ranks; requires -o'
complete -c ascend-job -n '__fish_seen_subcommand_from report' -l json -d 'print the table of several nodes as JSON'
complete -c ascend-job -n '__fish_seen_subcommand_from report' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a explain -d 'Explain an error code, or why a job of any launcher failed, from its logs'
complete -c ascend-job -n '__fish_seen_subcommand_from explain' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from explain' -l catalogue -d 'TOML file with this site\'s own explanations of errors, as for ascend-runner' -r -F
complete -c ascend-job -n '__fish_seen_subcommand_from explain' -l json -d 'print JSON'
complete -c ascend-job -n '__fish_seen_subcommand_from explain' -F
complete -c ascend-job -n __fish_use_subcommand -a checkpoint -d 'Ask the ranks of a running job for a checkpoint'
complete -c ascend-job -n '__fish_seen_subcommand_from checkpoint' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from checkpoint' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a limit -d 'Change the time limit of a running job, without affecting its ranks'
complete -c ascend-job -n '__fish_seen_subcommand_from limit' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from limit' -f -a 'off (__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a stop -d 'Stop a job, on all nodes if they are linked, as SIGTERM does'
complete -c ascend-job -n '__fish_seen_subcommand_from stop' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from stop' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a release -d 'Release a job that is held after a failure'
complete -c ascend-job -n '__fish_seen_subcommand_from release' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from release' -f -a '(__ascend_runner_jobs)'
complete -c ascend-job -n __fish_use_subcommand -a batch -d 'Run the commands of a file one after another; a second run skips those that have succeeded'
complete -c ascend-job -n '__fish_seen_subcommand_from batch' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from batch' -l keep-going -d 'continue after a command has failed'
complete -c ascend-job -n '__fish_seen_subcommand_from batch' -F
complete -c ascend-job -n __fish_use_subcommand -a completion -d 'Print a completion script for bash, zsh or fish'
complete -c ascend-job -n '__fish_seen_subcommand_from completion' -s h -l help -d 'show help'
complete -c ascend-job -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'

complete -c ascend-rank-table -f
complete -c ascend-rank-table -n '__fish_use_subcommand' -s h -l help -d 'show help'
complete -c ascend-rank-table -n '__fish_use_subcommand' -l version -d 'show the version'
complete -c ascend-rank-table -n __fish_use_subcommand -a show -d 'Show the servers, devices and ranks of a table'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from show' -s h -l help -d 'show help'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from show' -l all -d 'always print one line per device'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from show' -l json -d 'print JSON, which has the same form for every dialect'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from show' -F
complete -c ascend-rank-table -n __fish_use_subcommand -a validate -d 'List what HCCL would reject and what is unusual; exit with 1 if there is an error'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from validate' -s h -l help -d 'show help'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from validate' -l chip -d 'the chip that the table is for (default: from the table or SOC_VERSION, else any)' -r -f -a '910 910B A3 310P 950'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from validate' -F
complete -c ascend-rank-table -n __fish_use_subcommand -a wait -d 'Wait until a table is completed; exit with 1 if it is not completed in time'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from wait' -s h -l help -d 'show help'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from wait' -l timeout -d 'how long to wait (default: 1800, the same as HCCL)' -r -f -a ''
complete -c ascend-rank-table -n '__fish_seen_subcommand_from wait' -F
complete -c ascend-rank-table -n __fish_use_subcommand -a diff -d 'List, rank by rank, the differences that make HCCL report EI0005; exit with 1 if there are any'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from diff' -s h -l help -d 'show help'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from diff' -F
complete -c ascend-rank-table -n __fish_use_subcommand -a convert -d 'Write a table in a format that HCCL reads; a table that is already in one is copied unchanged'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from convert' -s h -l help -d 'show help'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from convert' -l to -d 'server-list (template 1) or group-list (template 2) (default: server-list)' -r -f -a 'server-list group-list'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from convert' -l chip -d 'the chip that the table is for (default: from the table or SOC_VERSION, else any)' -r -f -a '910 910B A3 310P 950'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from convert' -s o -l output -d 'the file to write; - for standard output (default: -)' -r -F
complete -c ascend-rank-table -n '__fish_seen_subcommand_from convert' -l no-checks -d 'write the table even if HCCL would reject it; counts that do not match their lists are corrected'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from convert' -F
complete -c ascend-rank-table -n __fish_use_subcommand -a generate -d 'Generate the table of this machine'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from generate' -s h -l help -d 'show help'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from generate' -l devices -d 'physical device ids, such as 0-7 or 0,2,4-6, in the order of the ranks (default: all devices)' -r -f -a ''
complete -c ascend-rank-table -n '__fish_seen_subcommand_from generate' -l server-id -d 'the server_id of the machine in the table (default: its address)' -r -f -a ''
complete -c ascend-rank-table -n '__fish_seen_subcommand_from generate' -l hccn-conf -d 'the driver\'s file of device addresses (default: /etc/hccn.conf)' -r -F
complete -c ascend-rank-table -n '__fish_seen_subcommand_from generate' -l chip -d 'the chip that the table is for (default: from the table or SOC_VERSION, else any)' -r -f -a '910 910B A3 310P 950'
complete -c ascend-rank-table -n '__fish_seen_subcommand_from generate' -s o -l output -d 'the file to write; - for standard output (default: -)' -r -F
complete -c ascend-rank-table -n '__fish_seen_subcommand_from generate' -l no-checks -d 'write the table even if HCCL would reject it; counts that do not match their lists are corrected'
