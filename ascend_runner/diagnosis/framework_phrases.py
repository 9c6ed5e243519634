"""The rules of `phrases` for classes of errors of frameworks: how packages, settings, models and data fit each other.

What `class_phrases` says of its rules holds for these. A line that begins with a frame is made of the innermost frame
of the traceback and its exception: an error inside a package has other reasons than the same one in a program. Of an
AssertionError or KeyError, the source line of that frame is searched as well.

A rule of the kind "words" is one of the kind "root" that counts only for the words of a package, not for those that the
user's program has chosen: there, anything "must be positive" or is "not supported".
"""

from __future__ import annotations

from typing import Final

FRAMEWORKS: Final = r"""
# torch utils/cpp_extension.py and _ops.py; DeepSpeed ops/op_builder; pybind11
root native extension = a native extension cannot be built: see the first error of its compiler above
    Error building extension '|Command '\['ninja',|Unable to JIT load the |has no attribute 'ds_opt_\w+'
    |unable to build \w+\.o\b
root ninja = the package ninja is missing: native extensions are built with it
    Ninja is required to load
root native operator = a native operator is not registered: its extension is missing, not loaded or of another version
    '_OpNamespace' '\w+' object has no attribute|operator \w+::\w+ does not exist
    |Could not find an implementation of \w+::|NotImplementedError: _C\w*::
root arguments of a native function = a native function got arguments of the wrong types: check the package's version
    incompatible function arguments
# torch nn/parallel; transformers models/auto; calls from one package into another
root wrapped model = the model is wrapped for parallel training: use the attribute of its module
    '(?:DistributedDataParallel|DataParallel|FullyShardedDataParallel|Float16Module)' object has no attribute
root type of a model = this version of transformers does not recognize the model: install a newer one
    /transformers/models/auto/\S+", line .*: KeyError: '
root unwrapped model = the model is not wrapped for parallel training: only a wrapper has the attribute module
    ^AttributeError: '(?!(?:NoneType|list|tuple|dict|str|int|\w*(?:namespace|config|args|arguments))')\w+'
    \sobject has no attribute 'module'$
root call between packages = packages, or the program and a package, do not fit together: check their versions
    /(?:(?:site|dist)-packages|megatron|mindspeed\w*|vllm\w*|sglang|deepspeed)/\S+", line \d+,
    \sin (?!_\w*call|__call__|wrap|inner|apply|decorate|_run_code)
    \S+: (?:NameError: name '\w+' is not defined
    |AttributeError: '(?!(?:NoneType|str|bytes|list|dict|tuple|set|int|float|bool|function|method|Tensor|Parameter
    |ndarray)')\w+' object has no attribute
    |TypeError: .*(?:missing \d+ required |takes .*positional arguments? but|got multiple values for))
# torch distributed/checkpoint; Megatron-LM training/checkpointing.py; vLLM and transformers: loading of weights
root loading of weights = the weights of a checkpoint do not match the model: check its configuration and the versions
    , in (?:\w*load_(?:\w*weights?|w\d+|state_dict|checkpoint)|weight_loader): (?:(?:Key|Index)Error
    |AssertionError(?:$|.*(?:shape|size|weight|param|key|\d [!=]= \d)))
root loading of a checkpoint = a checkpoint cannot be loaded: check its path, its format and the version that saved it
    , in \w*load_\w*(?:checkpoint|ckpt)\w*: (?:Attribute|Type|Value|Index)Error
root plan of a checkpoint = a distributed checkpoint is incomplete, or does not match the model or its parallel sizes
    /(?:distributed|_shard|core)/(?:dist_)?checkpoint(?:ing)?/\S+", line .*: (?:Key|Assertion|Value|Index)Error
root key of a checkpoint = a checkpoint lacks a key that the program expects: check what saved it, and in which version
    \b\w*(?:ckpt|checkpoint|state_dict)\[(['"][^'"]+['"])\].*: KeyError: \1
root settings of a checkpoint = a checkpoint was saved with other settings: use the same, or convert it
    value from checkpoint \(
root weights of a model = the weights of a checkpoint do not match the model: check its configuration and the versions
    Trying to set a tensor of shape|Attempted to load weight \(|weights were not initialized from checkpoint
    |no module or parameter named|size mismatch for [\w.]+:|^KeyError: '(?:[\w.]+\.)?layers?\.\d+\.(?![\w.]*attn')
    |^KeyError: '[\w.]+\.(?:weight|bias|qweight|scales)\b
root shared weights = parameters share memory: save them without safetensors, or with its save_model()
    Some tensors share memory
root configuration of a model = a model's config.json is missing or is that of another type of model: check its path
    Unrecognized model in |Unrecognized configuration class
root architecture of a model = this version of a package does not support the model: check its name and the version
    Model architectures? .*not supported|Can't find class type \w+ class name|unsupported model type
# Megatron-LM training/arguments.py; MindFormers parallel_config; torch distributed/device_mesh.py; vLLM; JAX
words number of devices = the sizes of a parallel layout do not match the ranks or the visible devices
    ^(?:Value|Assertion|Runtime)Error: (?!.*(?:time[ds]? ?out|waiting|watchdog|connect)).*
    (?:number of (?:\w+ )?(?:devices|npus|gpus|ranks)\b|not enough (?:devices|npus|gpus|ranks)
    |\b(?:devices?|npus?|gpus?|ranks?)(?:\(s\))?\b.{0,60}\b(?:but|only)\b.{0,20}\d+ (?:device|npu|gpu|rank)
    |world[ _]?size\b.{0,40}(?:!=|not (?:equal|match)|(?:less|more|smaller|larger|greater|bigger) than)
    |than default world size|\bdevice_num\b.*\b(?:must|should|not)\b|\b(?:must|should)\b.*\bdevice_num\b)
words parallel settings = parallel settings contradict each other or the model: check sizes, layers and micro-batches
    ^(?:Value|Assertion|NotImplemented)Error: (?!.*\b(?:nan|inf|infinite|overflow)\b).*
    (?:virtual pipeline|pipeline stage|micro[ _-]?batch
    |(?:tensor|pipeline|context|expert|sequence)[ _-](?:model[ _-])?parallel)
root number of a rank = a rank is not below the world size: check the world size and the number of nodes
    Invalid rank \d+, rank should be
words device mesh = an operator got tensors of different device meshes, or does not support DTensor
    ^\w*Error: .*(?:\bthe same mesh\b|\bdevice ?mesh\b|\bdtensor\b|a sharding strategy)
root layout of a device mesh = a device mesh does not match the ranks or its use: check the parallel settings
    /torch/distributed/device_mesh\.py", line
# OmegaConf and Hydra; pydantic; CPython argparse; absl; transformers hf_argparser.py and integrations/deepspeed.py
root setting = a setting is unknown, missing or of a wrong type: check its name, and the version of the package
    ^(?:omegaconf|hydra)\.errors\.|not used by the HfArgumentParser|validation errors? for \w+
    |Extra (?:inputs are|fields) not permitted
    |Override '[\w.-]+' not found
root argument of a program = a program refuses its arguments: check their spelling, and the program's version
    : error: (?:unrecognized arguments|no such option|the following arguments are required|argument \S+: )
    |unknown command line flag|(?:unknown|unrecognized) (?:[\w-]+ ){0,2}(?:argument|option|flag)s?:? ?[\['"`]*-
words quantization = a quantization method is unknown or not supported: check its name, and the version of the package
    (?:unknown|invalid|unsupported) quanti[sz]ation|no available \w+ quantizer|quanti[sz]ation .*not supported
words registry = a name in the configuration is not registered: check its spelling, its import and the version
    \b(?!\w*(?:label|word|token|id_))\w*(?:mapping|registry|_map|_classes|_factory)
    \[[\w.]*(?:name|type|method|mode|kind|arch\w*|model|backend|strategy)\].*: KeyError: '|is not in the [\w: ]*registry
    |is not registered (?:in|as)\b|^ValueError: Template \S+ does not exist
root options of the allocator = PYTORCH_NPU_ALLOC_CONF or its CUDA form has an unknown option: check it, and the version
    Unrecognized CachingAllocator option|ALLOC_CONF.*(?:unknown|unrecognized|invalid)
root buffer of HCCL = the buffer of HCCL is too small for an operator: raise HCCL_BUFFSIZE
    HCCL_BUFFSIZE.*(?:too small|increase|larger|at least|insufficient)
root no environment variable = an environment variable is not set: the message names it
    (?:/os\.py|<frozen os>)", line \d+, in __getitem__: KeyError: '
root libuv = this torch has no libuv: set USE_LIBUV=0
    built without libuv
root actor of verl = an actor of verl did not register in time: see ray's logs, and ray_wait_register_center_timeout
    failed to get register_center_actor
root automatic device map = device_map="auto" spreads a model over devices: leave it out in distributed training
    loaded with `device_map=.auto
root quantized model's device = a quantized model is not on the rank's own device: load it there, see device_map
    loaded in (?:8-bit|4-bit).*(?:on a different device|offload)
root accelerator created twice = an Accelerator was created twice with different settings: create it once
    AcceleratorState has already been initialized
root unbalanced memory = some devices have less free memory than others: other processes use them
    memory capacity is unbalanced
words environment variable = an environment variable is missing or wrong: set it as the message says
    ^\w*Error: (?!.*(?:LAUNCH_BLOCKING|_DEBUG|_VERBOSE|_LOG)).*(?:\bset(?:ting)? (?:the )?env(?:ironment)? variable
    |env(?:ironment)? variable \S+ (?:is not set|must|should))
root batch size of DeepSpeed = DeepSpeed needs the batch size: prepare a data loader, or set it in its configuration
    requires you to pass at least one of training or evaluation dataloaders
root optimizer on the CPU = DeepSpeedCPUAdam needs parameters on the CPU: use it only with offload of the optimizer
    CPUAdam param is on
root DeepSpeed's settings = the configuration of DeepSpeed contradicts the trainer's arguments: set it to "auto"
    DeepSpeed config values that mismatch
root length of an input = an input is longer than the limit of its output: compare max_length and the data
    Input length of input_ids is \d+, but
words length of a sequence = a sequence is too long for the model or its settings: compare max_model_len and the data
    ^\w*Error: .*(?:longer|larger|greater|smaller) than .*
    (?:max(?:imum)?[ _](?:model|seq\w*|context)[ _]len|max_position)
# HF datasets; LlamaFactory data/parser.py; tokenizers; transformers tokenization_utils_base.py; collators; pandas
words no data = the dataset is empty: check its path, and what is filtered out
    ^\w*Error: (?:.*\b(?:data ?set|data|data ?loader) is empty\b|no (?:train\w* |valid\w* )?(?:data|samples|examples)
    (?:$| (?:found|loaded|provided|remain|left\b(?! in file)|after|in|at|to train|(?:was|were) (?:found|loaded))\b))
root format of samples = no sample has the expected form: check the dataset's columns, roles and template
    Cannot find valid samples
words images of a sample = the images of a sample do not match its text: check the data and the cut-off length
    ^ValueError: .*\bimages?\b.{0,80}(?:do(?:es)? not match|different from|mismatch)
root columns removed = the dataset is empty, or its columns were removed: see remove_unused_columns
    Invalid key: \d+ is out of bounds for size 0
root cached dataset = incompatible packages: update datasets, or install an older fsspec
    dataset cached in a LocalFileSystem
root column = samples lack a column that the program expects: check the names of the dataset's columns
    Column name .* not in the dataset|, in (?:\w*collat\w*|get_loc): KeyError: '|collat\w*\.py", line .*: KeyError: '
    |/llamafactory/data/\w+\.py", line .*: KeyError: '|supply an encoding or a list of encodings
    |No columns in the dataset match|specify (?:either|exactly one of) \S*input_ids
root labels = the model got no labels, so it returns no loss: check the columns of the dataset and label_names
    did not return a loss from the inputs
root dataset for a step = a dataset for the training or the evaluation is missing: pass it, or turn this step off
    (?:training|evaluation) requires an? (?:train|eval)_dataset
root types of columns = the files of a dataset differ in their columns or types
    Couldn't cast|column names don't match
root JSON of a dataset = a file of a dataset cannot be read as JSON: see the row that the message names
    JSON parse error
root split of a dataset = a dataset or split with this name does not exist, or has no data: check its name and files
    Unknown split "|corresponds to no data|Undefined dataset \S+ in|at least one example when writing data
root text = the text of a sample is not a string: look for empty or missing values in the data
    TextEncodeInput must be|text input must be of type
root padding = samples differ in length: pad and truncate them
    you should probably activate truncation|expected sequence of length \d+ at dim
root padding token = the tokenizer has no padding token: set pad_token, for example to eos_token
    does not have a padding token|if no padding token is defined
root chat template = the tokenizer has no chat template: set one, or use a model that has one
    chat_template is not set
root roles of a conversation = a template refuses its input: for a chat template, check the roles and their order
    ^jinja2\.exceptions\.(?:Template|Undefined)Error: |roles must alternate
words token of a tokenizer = the tokenizer lacks a token that the program needs: check its files, type and version
    ^\w*Error: (?:can ?not find|could not find|missing|no) .{0,60}\b(?:in|of|for) (?:the |this )?
    (?:tokeni[sz]er|vocab\w*)\b
root file of a tokenizer = a file of the tokenizer is missing: check the files of the model
    /sentencepiece/\S+", line .*: TypeError: not a string|No tokenizer file found
# torch_npu npu/__init__.py, npu/graphs.py and dynamo/torchair; bitsandbytes; CUDA graphs; torch inductor; torch
# autograd; transformers quantizers; Triton
root capture of a graph = an operation cannot be captured in a graph: run it outside of the graph, or in eager mode
    during (?:\w+ )?graph capture|stream is capturing
root converter of torchair = torchair cannot compile an operator: use a newer torch_npu, or run the model in eager mode
    op converter is not implemented|Unsupported torch op
root triton's resources = a kernel needs more on-chip memory than the chip has: use smaller blocks
    OutOfResources: out of resource
root kernel of triton = a Triton kernel cannot be compiled: check the versions of Triton and CANN
    ^triton\.compiler\.errors\.|MLIRCompilationError
root no Triton = a working Triton is missing: install the one for Ascend, or train without torch.compile
    working triton installation|TritonMissing|0 active drivers
root second backward pass = a graph is used in two backward passes: detach tensors of earlier steps, or retain_graph
    backward through the graph a second time
root leaf = a parameter was changed in place: change it where no gradients are computed, or use a copy
    a leaf (?:variable|parameter) that requires grad
root order of modules = ZeRO-3 lost track of the modules: all ranks must run them in the same order; see leaf modules
    inflight params|parameter fetch queue|disagreement between rank0 and rank|^AssertionError: \{'id': \d+, 'status': '
root initialization of the device = the device cannot be initialized: check CANN and the driver, and who uses the device
    /torch_npu/npu/__init__\.py", line \d+, in _lazy_init: RuntimeError
root bitsandbytes = bitsandbytes has no native part for this device: install a build that has it, or leave it out
    /bitsandbytes/\S+", line .*: (?:Attribute|Runtime|Name|Type)Error
root profiler = the profiler failed: check its arguments, or train without it
    (?:-packages|/torch|/torch_npu|/mindspore)/(?:\S+/)?profiler/\S+", line .*: \w*Error
root compiler of graphs = a graph cannot be compiled: use a newer torch_npu, or run the model in eager mode
    /(?:torchair|torch/_inductor)/\S+", line .*: (?:Assertion|NotImplemented|Runtime|Value|Type|Key|Attribute)Error
words memory for a model = not enough memory on the device or the server: check what else uses it, and the settings
    ^\w*Error: (?:.*\b)?(?:not enough|insufficient) (?:\w+ )?memory
    |^ValueError: (?:Some modules are dispatched on the CPU or the disk|The current .*weights offloaded to the disk)
    |a model that has some modules offloaded
# Checks by words or places that many packages share
words versions = incompatible versions: install those that the message asks for
    ^[\w.]*(?:Error|Exception): .*(?:the installed version|version mismatch|(?:newer|higher|later|older) version
    |(?:is|are) too (?:old|new)\b|version.*(?:not compatible|incompatible)
    |compiled with different (?:\w+ ){0,2}versions|version .{1,60}(?:does not|doesn't|do not) match
    |please (?:upgrade|update|downgrade|reinstall)\b)
words index of a tensor = an index is out of range for a tensor: check the model's sizes, the data and parallel settings
    ^\w*Error: .*(?:out of bounds for (?:axis|dimension)|\bstart out of range|exceeds dimension size
    |selected index k out of range)
words equal parts = sizes do not match: ranks, parallel sizes, batch sizes, layers or heads must divide one another
    equal (?:chunks?|splits?|parts)\b|\bevenly (?:divi|split)|(?:cannot|can't|could not|not) be (?:evenly )?divided
words data types = the data types of tensors differ: convert them, or use autocast
    ^(?:Value|Type|Runtime|Assertion)Error: .*(?:\b(?:d|data )?types? (?:should|must) be (?:the )?same
    |\b(?:same|identical|uniform|consistent) (?:data ?)?(?:d?type|precision)s?\b|\bdtype mismatch)
words sizes of tensors = the sizes of tensors do not match: check the model's settings, the data and the checkpoint
    ^(?:Value|Type|Runtime|Assertion|Index)Error: (?!.*\b(?:files?|bytes|download\w*)\b).*
    (?:\bdim(?:ension)?s? of \S+ (?:should|must) be \d|\bshapes? of \S+ and \S+ (?:is|are) (?:inconsistent|different)
    |\b(?:shape|(?<!world )size|dimension)s? (?:of \S+ )?
    (?:mismatch|do(?:es)? ?n[o']t match|(?:must|should) (?:match|be (?:the )?(?:same|equal)))
    |\b(?:must|should) have (?:[\w-]+ ){0,4}(?:shape|size|length|dimension|dim)s?\b
    |\b(?:identical|same|different|inconsistent|mismatched) (?:batch |tensor )?(?:shape|size|dimension)s?\b)
words configuration of DeepSpeed = DeepSpeed refuses its configuration: check ZeRO's stage, optimizer, offload and types
    (?:DeepSpeedConfigError|ZeRORuntimeException):
    |^(?:Value|Assertion)Error: .*\b(?:deepspeed config|zero[ -]?(?:\d|stage|offload|inference))
    |/deepspeed/\S+", line \d+, in (?:__init__|_configure\w*|_do_\w*check\w*|_\w*assertion):
    \s(?:Value|Assertion|Key|Type|NotImplemented)Error: \S
root FSDP = FSDP cannot be used like this: check its settings, and that all calls go through the wrapped model
    (?:/torch/distributed/(?:fsdp|_composable)/|/accelerate/utils/fsdp_utils)\S*", line .*:
    \s(?:Value|Assertion|Type|Attribute)Error
root check of settings = a check of the settings failed: compare the ones that the message names
    , in (?:__post_init__|\w*(?:validate|verify|check|parse)_(?:\w*_)?(?:arg|config|setting|option)\w*):
    \s(?:Value|Assertion)Error: \S
root check of a configuration = a check of the settings failed: compare the ones that the message names
    /(?:config/\w+|\w*config\w*|\w*arguments?|\w*args|arg_utils|platform)\.py", line .*:
    \s(?:Value|Assertion)Error: (?!invalid literal|could not convert|not enough values|too many values)\S
root samples of a dataset = a sample cannot be processed: check the format of the data
    (?<!torch/utils/data)/(?:\w*dataset\w*|\w*collat\w*|\w*preprocess\w*)\.py", line \d+, in
    \s(?:\S+: (?:Value|Assertion)Error|(?!__init__|__len__|<module>|main\b)\S+: (?:Type|Index)Error)
root data of a dataset = a dataset cannot be read: check the format, the columns and the data types of its files
    ^(?:pyarrow\.lib|datasets\.\w+)\.\w+:|/datasets/(?:builder|table|arrow_writer|features/\w+)\.py", line
words data type = a data type is not supported here: convert the data or the model to another one, such as float32
    ^(?:Value|Runtime|Type|NotImplemented)Error: .*(?:unsupport(?:ed)? (?:data ?|d)types?\b
    |\b(?:data ?|d)types? .{0,40}\bnot support|not support .{0,20}(?:data ?|d)types?\b
    |\b(?:data ?|d)type .{1,60} not (?:inexact|in (?:the )?list))
root scalar = a tensor has one value instead of several, or the reverse: see item(), and the data's shapes
    \b0-d(?:im)? tensor|only one element tensors|elements cannot be converted to Scalar
words not available here = something is not available here: check its installation, the versions and the device
    ^(?:Value|Runtime|Import|Assertion|NotImplemented)Error: (?!.*\b(?:port|address|memory|checkpoint|file|rank)\b).*
    (?:\b(?:is|are) not available\b|\bnot installed\b
    |\bno available (?!\w+ (?:node|port|slot)))
root values to unpack = a shape or tuple in a model has an unexpected length: check the data and the versions
    (?:/(?:modeling_\w+|\w*attention\w*)|-packages/\S+/(?:models?|layers)/\S+)\.py", line .*:
    \sValueError: (?:not enough|too many) values to\b
words not supported here = something is not supported here: check the versions, the device and what the message names
    ^(?:Value|Runtime|Type|Assertion|NotImplemented)Error: (?!.*object does not support).*
    (?:not (?:yet )?(?:be )?support(?:ed)?\b(?! between)|\bis not (?:\w+ )?implemented\b
    |only supported|only supports? \w+ ?[<>=]|do(?:es|se)? ?n[o']t support
    |unsupported (?!operand|format|pickle))
    |-packages/\S+", line .*: NotImplementedError: \S
words equal numbers = numbers that must be equal differ: check the model's settings, the data and the checkpoint
    ^(?:Value|Runtime|Assertion)Error: (?!.*\b(?:files?|bytes|download\w*)\b).*
    \b(?:num|number|size|length|count|dim)\w*\b.*
    (?:(?:must|should) be equal|(?:must|should|do(?:es)? not|don't) match|\bdifferent from\b|\bmismatch|not equal to)
words refused value = an argument or setting is refused: check its value, and the version of the package
    (?:-packages|/megatron\w*|/mindspeed\w*)/\S+", line .*: (?:Key|Type|Value|Assertion)Error: .*
    (?:\bis not a valid \w+(?:, please|$)
    |\b(?:must|should) (?:contain\b
    |be (?:an? |one of|of type|either|in |set|greater|less|positive|smaller|larger|[<>])))
words refused setting = an argument or setting is refused: check its value
    ^(?:Value|Assertion)Error: (?!.*\b(?:nan|inf|input_ids|labels?|loss\w*|grad\w*|\w*mask)\b)
    [`'"(-]*(?:\w+\.)?[a-z0-9]+(?:[_-][a-z0-9]+)+\b.{0,60}\b(?:must|should) (?:not )?be\b
words setting named = a setting or variable has to be changed: the message names it
    ^\w*Error: (?!.*(?:LAUNCH_BLOCKING|_DEBUG|_VERBOSE|_LOG|time[ds]? ?out)).*
    \b(?:please|you (?:must|should|need to|can)|try|consider) (?:to )?
    (?:set|export|unset|pass|specify|enable|disable|increas|reduc|adjust)(?:ing|e)?
    \s[`'"-]{0,3}(?!input_ids|attention_mask)\w+[_-]\w
# Assertions, by their source lines
root assertion on settings = a check of the settings failed: see the ones in the condition
    ^assert (?:not )?(?:self\.)?(?:\w*args|\w*config|cfg|hparams)\.
root assertion on a value = a value is None: check the settings and the data that it comes from
    ^assert (?:\w+\.)*\w+ is not None\b
root assertion on versions = incompatible versions: see the condition
    ^assert .*(?:__version__|\bversion\b|\w_version\b ?[<>=])
root assertion on the number of ranks = the number of ranks does not match the settings: see the condition
    ^assert .*\bworld_size\b
root assertion on types = a tensor has a different data type than expected: check the precision settings
    ^assert .*\.dtype\b
root assertion on sizes = sizes that must be equal differ: check the model's settings, the data and the checkpoint
    ^assert (?!.*(?:argv|== ?0\b)).*(?:\b(?:len|size|numel)\(.*\)|\.shape\b.*) ?==
"""
