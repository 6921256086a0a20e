"""What the parameters of a function can mean, and the names that people give them."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from headwise.verbs.check.asking import Role
from headwise.verbs.check.subject.weight_names import WeightRole


class Part(Enum):
    """What a parameter means that no probe chooses: it follows from the sizes or from the call."""

    D_MODEL = "d_model"
    HEAD_DIM = "head_dim"
    VALUE_HEAD_DIM = "value_head_dim"
    WIDTH = "width"  # of all heads side by side
    GROUP_SIZE = "group_size"  # query heads to a KV head
    BATCH = "batch"
    SEQ_LEN = "seq_len"
    KV_LEN = "kv_len"
    LENGTHS = "lengths"  # how many tokens of each text are real; all of them
    CAPACITY = "capacity"  # the longest text it is made for
    GROUPED = "grouped"  # a flag: there are fewer KV heads than query heads
    TRAINING = "training"  # a flag
    USE_CACHE = "use_cache"  # a flag
    START = "start"  # the position of the first token
    POSITIONS = "positions"  # of the tokens, [batch, seq_len]
    ROTATION = "rotation"  # the cosines and sines of the positions, a pair


class Constant(NamedTuple):
    """A value that the user gives, handed over as it is."""

    value: Any


Meaning: TypeAlias = Role | Part | WeightRole | Constant

INPUTS = frozenset({Role.QUERY, Role.KEY, Role.VALUE})

_ROLE_NAMES: dict[Role | Part, str] = {
    Role.QUERY: "q query queries xq qs querystates x hiddenstates hiddenstate hidden inputs input inp "
    "inputq embeddings embedding emb tokens sequence seq src tgt target data",
    Role.KEY: "k key keys xk ks keystates context memory encoderhiddenstates encoderoutput "
    "encoderoutputs keyvaluestates kv xkv source",
    Role.VALUE: "v value values xv vs valuestates",
    Role.MASK: "mask attnmask attentionmask causalmask srcmask tgtmask boolmask masks",
    Role.PADDING: "paddingmask keypaddingmask padmask keymask srckeypaddingmask memorykeypaddingmask kpm",
    Role.BIAS: "bias attnbias attentionbias positionbias scorebias scoresbias alibi relbias relativebias",
    Role.CAUSAL: "iscausal causal usecausal usecausalmask autoregressive",
    Role.WINDOW: "window windowsize slidingwindow attentionwindow localwindow",
    Role.SOFTCAP: "softcap softcapping logitcap logitsoftcap logitssoftcap attnlogitsoftcap "
    "attnlogitsoftcapping softcapvalue",
    Role.SCALE: "scale softmaxscale scaling smscale scalefactor attentionscale",
    Role.DROPOUT: "dropout dropoutp pdropout dropoutrate dropoutprob attndropout attentiondropout pdrop "
    "attnpdrop",
    Role.NUM_HEADS: "numheads nheads nhead numhead heads numattentionheads numberofheads headcount "
    "headsnum hq",
    Role.NUM_KV_HEADS: "numkvheads nkvheads nkvhead numkeyvalueheads kvheads numkv nkv hkv groups numgroups "
    "ngroups numquerygroups",
    Role.NEED_WEIGHTS: "needweights returnweights outputattentions outputattention returnattention "
    "returnattn returnattnweights returnattentionweights outputweights returnprobs",
    Role.CACHE: "cache kvcache pastkeyvalue pastkeyvalues layerpast past pastkv",
    Part.D_MODEL: "dmodel embeddim dim hiddensize hiddendim nembd embdim embedsize modeldim modelsize "
    "embeddingdim din indim inputdim infeatures channels inchannels nstate dembed querydim "
    "embed embsize modelwidth width numhiddens",
    Part.HEAD_DIM: "headdim dimhead dhead headsize attentionheadsize dk dkey dkv headwidth dqk",
    Part.VALUE_HEAD_DIM: "valueheaddim vheaddim dv dvalue dimv",
    Part.WIDTH: "innerdim dout outdim outputdim qkvdim dattn attndim",
    Part.GROUP_SIZE: "groupsize nrep numkeyvaluegroups kvgroups queriesperkv",
    Part.BATCH: "batch batchsize bsz bs",
    Part.SEQ_LEN: "seqlen seqlength querylen sequencelength",
    Part.KV_LEN: "kvlen keylen",
    Part.LENGTHS: "validlens validlen validlengths lengths seqlens",
    Part.CAPACITY: "contextlength blocksize maxseqlen maxlen maxlength contextsize maxpositionembeddings "
    "maxsequencelength nctx ctxlen maxcontext contextwindow",
    Part.GROUPED: "enablegqa usegqa",
    Part.TRAINING: "training train istraining",
    Part.USE_CACHE: "usecache returncache returnkv returnpresent",
    Part.START: "startpos startposition offset positionoffset pastlen pastlength",
    Part.POSITIONS: "positionids positions cacheposition inputpos",
    Part.ROTATION: "positionembeddings rotaryposemb cossin",
}
MEANING_OF_NAME = {name: meaning for meaning, names in _ROLE_NAMES.items() for name in names.split()}
"""Role or part by the name of a parameter without its style."""

MEANING_OF_WORD: dict[str, Role | Part] = {
    meaning.value: meaning for kind in (Role, Part) for meaning in kind
}
"""Role or part by the word that a user writes in `arguments`."""
